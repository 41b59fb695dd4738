"""A lease is extended for the living, and taken from the dead by one reaper at a time."""

from __future__ import annotations

from uuid import UUID

from aijobs.domain.claims import DeadAttempt, Settled
from aijobs.domain.policy import Backoff, after_death
from aijobs.store import calls, claims, jobs, reaping
from aijobs.store.calls import Intent
from aijobs.store.claims import Ending
from aijobs.store.db import Connection, Database, connect
from tests.store.make import claim_some, queued, running


def by_policy(dead: DeadAttempt) -> Ending:
    error = {"code": "worker_lost", "class": "unknown" if dead.sent else "transient", "message": "gone"}
    decision = after_death(dead.allowance, sent=dead.sent, backoff=Backoff(), jitter=0.5)
    return Ending("unknown" if dead.sent else "failed", decision, error)


def reap(connection: Connection, worker: str = "reaper") -> reaping.Reaped:
    return reaping.reap(connection, worker_id=worker, hold_seconds=5, end=by_policy)


def expire_leases(connection: Connection) -> None:
    connection.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'running'")


def mark_sent(connection: Connection, job_id: UUID, run_token: UUID) -> None:
    assert calls.mark_sent(connection, [Intent(job_id, run_token, "s", "sim", "m", b"h" * 32)]) == {job_id: None}


def test_a_row_that_is_locked_elsewhere_is_unconfirmed_and_expires_no_other(
    db: Database, tenant: UUID, connection: Connection, database_url: str
) -> None:
    first, second = running(db, connection, tenant), running(db, connection, tenant)
    held = [(claim.job_id, claim.run_token) for claim in (first, second)]
    with connect(database_url, application_name="other") as other, other.transaction():
        other.execute("SELECT FROM ai_jobs WHERE id = %s FOR UPDATE", [first.job_id])
        extension = claims.extend(connection, held, lease_seconds=60)
    assert extension.confirmed == {second.job_id}
    assert extension.lost == frozenset()


def test_a_heartbeat_learns_of_a_cancel(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    jobs.request_cancel(db, tenant, claim.job_id)
    extension = claims.extend(connection, [(claim.job_id, claim.run_token)], lease_seconds=60)
    assert extension.cancel_requested == {claim.job_id}


def test_a_heartbeat_is_a_hot_update(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    for _ in range(5):
        claims.extend(connection, [(claim.job_id, claim.run_token)], lease_seconds=60)
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'ai_jobs'"
    ).fetchone()
    assert row is not None and row["hot"] >= 5


def test_a_dead_attempt_that_had_sent_nothing_goes_back_in_line_uncounted(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    claim = running(db, connection, tenant)
    expire_leases(connection)
    ((dead, _, settled),) = reap(connection).endings
    assert (dead.job_id, dead.sent, settled) == (claim.job_id, False, Settled.DONE)
    (again,) = claim_some(connection)
    assert (again.allowance.attempts, again.allowance.attempts_counted) == (2, 0)
    assert again.allowance.unsent_deaths == 1


def test_a_dead_attempt_that_had_sent_is_unknown_and_its_call_says_so(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    claim = running(db, connection, tenant, on_unknown="hold")
    mark_sent(connection, claim.job_id, claim.run_token)
    expire_leases(connection)
    reap(connection)
    row = connection.execute(
        "SELECT j.status, j.error ->> 'code' AS code, a.outcome AS attempt, c.outcome AS call, c.stage, c.cost_basis,"
        " c.cost_micros FROM ai_jobs j JOIN ai_attempts a ON a.job_id = j.id JOIN ai_calls c ON c.job_id = j.id"
    ).fetchone()
    assert row == {
        "status": "held",
        "code": "outcome_unknown",
        "attempt": "unknown",
        "call": "unknown",
        "stage": "finished",
        "cost_basis": "unknown",
        "cost_micros": None,
    }


def test_a_dead_attempt_whose_cancel_was_asked_for_ends_as_cancelled(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    claim = running(db, connection, tenant)
    mark_sent(connection, claim.job_id, claim.run_token)
    jobs.request_cancel(db, tenant, claim.job_id)
    expire_leases(connection)
    ((_, _, settled),) = reap(connection).endings
    job = jobs.get(db, tenant, claim.job_id)
    assert settled is Settled.CANCELLED
    assert job is not None and job.status == "cancelled"


def test_one_odd_row_does_not_stop_the_recovery_of_the_others(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    ids = [running(db, connection, tenant).job_id for _ in range(20)]
    connection.execute("UPDATE ai_jobs SET run_at = 'infinity' WHERE id = %s", [ids[0]])
    connection.execute("UPDATE ai_jobs SET payload = '5', provider = 'gone' WHERE id = %s", [ids[1]])
    expire_leases(connection)
    assert len(reap(connection).endings) == 20
    job = jobs.get(db, tenant, ids[0])
    assert job is not None and job.status == "queued"


def test_only_the_holder_of_the_duty_reaps_until_its_hold_runs_out(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    assert reap(connection, "a").on_duty
    running(db, connection, tenant)
    expire_leases(connection)
    refused = reap(connection, "b")
    assert (refused.on_duty, refused.endings) == (False, [])
    connection.execute("UPDATE ai_duties SET held_until = now() - interval '1 second'")
    assert len(reap(connection, "b").endings) == 1
    reaping.give_up_duty(connection, worker_id="b")
    assert reap(connection, "a").on_duty


def test_a_claim_tells_when_nobody_reaps(db: Database, connection: Connection) -> None:
    def look() -> bool:
        return claims.claim(
            connection, worker_id="w", lease_seconds=9, queues=None, kinds=["noop"], slots=1
        ).reaper_vacant

    assert look()
    reap(connection)
    assert not look()


def test_the_jobs_of_a_dead_process_are_released_whatever_their_leases_say(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    for _ in range(3):
        queued(db, tenant)
    mine = claim_some(connection, slots=2, worker="dead", lease=3600)
    claim_some(connection, slots=1, worker="alive", lease=3600)
    endings = reaping.release_dead(connection, worker_id="dead", end=by_policy)
    assert {dead.job_id for dead, _, _ in endings} == {claim.job_id for claim in mine}
    assert reaping.release_dead(connection, worker_id="dead", end=by_policy) == []
    assert len(claim_some(connection, slots=9)) == 2
