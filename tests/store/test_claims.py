"""A due job is claimed once, in order, and nothing else is."""

from __future__ import annotations

import threading
from uuid import UUID

import psycopg
import pytest

from aijobs.store import claims, jobs, reaping, upkeep
from aijobs.store.db import Connection, Database
from tests.store.make import claim_some, queued


def test_a_claim_opens_an_attempt_mints_a_token_and_starts_a_lease(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    job = queued(db, tenant)
    (claim,) = claim_some(connection, worker="w1", lease=60)
    assert claim.job_id == job.id
    row = connection.execute(
        "SELECT j.status, j.run_token = a.run_token AS same, a.number, a.worker_id,"
        " extract(epoch FROM j.lease_until - now()) BETWEEN 55 AND 60 AS leased"
        " FROM ai_jobs j JOIN ai_attempts a ON a.job_id = j.id"
    ).fetchone()
    assert row == {"status": "running", "same": True, "number": 1, "worker_id": "w1", "leased": True}


def test_competing_claimers_take_each_job_once(db: Database, tenant: UUID, database_url: str) -> None:
    expected = {queued(db, tenant).id for _ in range(60)}
    taken: list[UUID] = []

    def drain(name: str) -> None:
        from aijobs.store.db import connect as open_connection

        with open_connection(database_url, application_name=name) as own:
            while found := claim_some(own, slots=3, worker=name):
                taken.extend(claim.job_id for claim in found)

    threads = [threading.Thread(target=drain, args=(f"w{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 60
    assert set(taken) == expected


def test_a_claim_never_takes_more_than_its_slots(db: Database, tenant: UUID, connection: Connection) -> None:
    for n in range(10):
        queued(db, tenant, queue=f"q{n % 3}")
    assert len(claim_some(connection, slots=4)) == 4
    assert len(claim_some(connection, slots=100)) == 6


def test_a_claim_takes_its_limit_even_when_the_planner_prefers_nested_loops(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    for _ in range(10):
        queued(db, tenant)
    connection.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off")
    assert len(claim_some(connection, slots=1)) == 1


def test_higher_priority_goes_first_and_age_breaks_ties(db: Database, tenant: UUID, connection: Connection) -> None:
    low, first, second, high = (queued(db, tenant, priority=p).id for p in (-5, 0, 0, 5))
    assert [claim_some(connection)[0].job_id for _ in range(4)] == [high, first, second, low]


def test_waiting_outweighs_priority_in_the_end(db: Database, tenant: UUID, connection: Connection) -> None:
    old = queued(db, tenant, priority=0).id
    connection.execute("UPDATE ai_jobs SET order_at = order_at - interval '11 minutes' WHERE id = %s", [old])
    queued(db, tenant, priority=10)
    assert claim_some(connection)[0].job_id == old


def test_a_start_in_the_distant_past_is_no_way_to_the_front(db: Database, tenant: UUID, connection: Connection) -> None:
    first = queued(db, tenant).id
    queued(db, tenant, run_at="2001-01-01T00:00:00Z")
    assert claim_some(connection)[0].job_id == first


def test_a_delayed_job_is_claimed_when_its_time_has_come(db: Database, tenant: UUID, connection: Connection) -> None:
    job = queued(db, tenant, run_at="2099-01-01T00:00:00Z")
    assert claims.promote(connection) == 0
    found = claims.claim(connection, worker_id="w", lease_seconds=9, queues=None, kinds=["noop"], slots=1)
    assert found.claims == []
    assert found.next_due_seconds is not None and found.next_due_seconds > 1e6
    connection.execute("UPDATE ai_jobs SET run_at = now() - interval '1 second'")
    assert claims.promote(connection) == 1
    assert [claim.job_id for claim in claim_some(connection)] == [job.id]


def test_other_queues_other_kinds_and_expired_jobs_are_left_alone(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    queued(db, tenant, queue="other")
    queued(db, tenant, kind="unheard-of")
    queued(db, tenant, expires_at="2020-01-01T00:00:00Z")
    assert claim_some(connection, slots=9, queues=["default"]) == []
    assert claim_some(connection, slots=9, queues=["other"]) != []


def test_a_job_of_a_kind_this_worker_does_not_know_stays_queued(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    unknown = queued(db, tenant, kind="unheard-of").id
    known = queued(db, tenant).id
    assert [claim.job_id for claim in claim_some(connection, slots=9)] == [known]
    job = jobs.get(db, tenant, unknown)
    assert job is not None and job.status == "queued"


def test_jobs_past_their_expiry_end_as_deadline_exceeded(db: Database, tenant: UUID, connection: Connection) -> None:
    late = queued(db, tenant, expires_at="2020-01-01T00:00:00Z").id
    queued(db, tenant, expires_at="2099-01-01T00:00:00Z")
    assert upkeep.expire(connection) == 1
    job = jobs.get(db, tenant, late)
    assert job is not None and job.error is not None
    assert (job.status, job.error["code"]) == ("failed", "deadline_exceeded")


@pytest.mark.parametrize(
    "half_set",
    [
        "SET run_token = gen_random_uuid()",
        "SET worker_id = 'w'",
        "SET lease_until = now()",
        "SET finished_at = now()",
        "SET result = '{}'",
        "SET cancel_requested_at = now()",
        "SET status = 'failed', order_at = NULL, finished_at = now()",
        "SET status = 'held'",
    ],
)
def test_the_schema_refuses_half_set_rows(db: Database, tenant: UUID, connection: Connection, half_set: str) -> None:
    queued(db, tenant)
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(f"UPDATE ai_jobs {half_set}")


def test_a_lost_claim_reply_is_given_back_without_waiting_for_its_lease(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    queued(db, tenant)
    queued(db, tenant)
    known, lost = claim_some(connection, slots=2)
    assert reaping.release_unheld(connection, worker_id="w1", held=[known.job_id]) == ["default"]
    (again,) = claim_some(connection, slots=9)
    assert again.job_id == lost.job_id
    assert again.allowance.attempts == 2
    assert again.allowance.attempts_counted == 0
