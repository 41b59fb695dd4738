"""A worker that lost its job cannot change it; one that still has it can repeat itself safely."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from aijobs.domain.claims import Settled
from aijobs.domain.failures import Usage
from aijobs.domain.policy import Decision, Fail, Hold, Retry
from aijobs.store import calls, claims, jobs, reaping
from aijobs.store.calls import CallEnding, Intent
from aijobs.store.claims import Ending, Result
from aijobs.store.db import Connection, Database
from tests.store.make import ERROR, claim_some, running

DECISIONS = [Retry(0.0, counted=True), Hold("some_code"), Fail("some_code")]


def whole_row(connection: Connection, job_id: UUID) -> object:
    return connection.execute(
        "SELECT to_jsonb(j) AS job, (SELECT count(*) FROM ai_events WHERE job_id = j.id) AS events"
        " FROM ai_jobs j WHERE id = %s",
        [job_id],
    ).fetchone()


def take_over(connection: Connection, job_id: UUID) -> reaping.Reaped:
    """The lease runs out, the reaper requeues, another worker claims."""
    connection.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE id = %s", [job_id])
    ending = Ending("failed", Retry(0.0, counted=False), ERROR | {"code": "worker_lost"})
    reaped = reaping.reap(connection, worker_id="reaper", hold_seconds=1, end=lambda dead: ending)
    claim_some(connection, worker="w2")
    return reaped


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_stale_worker_changes_nothing_of_its_successors_job(
    db: Database, tenant: UUID, connection: Connection, decision: Decision
) -> None:
    stale = running(db, connection, tenant)
    assert len(take_over(connection, stale.job_id).endings) == 1
    before = whole_row(connection, stale.job_id)
    accepted = claims.accept(connection, [Result(stale.job_id, stale.run_token, '{"text": "late"}')])
    assert accepted[stale.job_id].settled is Settled.LOST
    assert claims.settle(connection, stale.job_id, stale.run_token, Ending("failed", decision, ERROR)) is Settled.LOST
    lost = claims.extend(connection, [(stale.job_id, stale.run_token)], lease_seconds=60).lost
    assert lost == {stale.job_id}
    assert calls.mark_sent(connection, [Intent(stale.job_id, stale.run_token, "s", "sim", "m", b"h" * 32)]) == {}
    assert whole_row(connection, stale.job_id) == before


def test_a_result_is_accepted_after_the_lease_ran_out_if_nobody_took_over(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    claim = running(db, connection, tenant)
    connection.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 hour'")
    assert (
        claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])[claim.job_id].settled is Settled.DONE
    )


def test_an_accept_whose_reply_was_lost_can_be_repeated(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    result = Result(claim.job_id, claim.run_token, '{"text": "x"}')
    assert claims.accept(connection, [result])[claim.job_id].settled is Settled.DONE
    before = whole_row(connection, claim.job_id)
    assert claims.accept(connection, [result])[claim.job_id].settled is Settled.ALREADY
    assert whole_row(connection, claim.job_id) == before


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_settlement_whose_reply_was_lost_can_be_repeated(
    db: Database, tenant: UUID, connection: Connection, decision: Decision
) -> None:
    claim = running(db, connection, tenant)
    ending = Ending("failed", decision, ERROR)
    assert claims.settle(connection, claim.job_id, claim.run_token, ending) is Settled.DONE
    before = whole_row(connection, claim.job_id)
    assert claims.settle(connection, claim.job_id, claim.run_token, ending) is Settled.ALREADY
    assert whole_row(connection, claim.job_id) == before


def test_a_made_up_token_owns_nothing(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    accepted = claims.accept(connection, [Result(claim.job_id, uuid4(), "{}")])
    assert accepted[claim.job_id].settled is Settled.LOST


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_cancel_that_came_first_wins_over_every_other_end(
    db: Database, tenant: UUID, connection: Connection, decision: Decision
) -> None:
    claim = running(db, connection, tenant)
    asked = jobs.request_cancel(db, tenant, claim.job_id)
    assert asked is not None and asked.status == "running" and asked.cancel_requested
    ended = claims.settle(connection, claim.job_id, claim.run_token, Ending("failed", decision, ERROR))
    job = jobs.get(db, tenant, claim.job_id)
    assert ended is Settled.CANCELLED
    assert job is not None and job.status == "cancelled" and job.result is None


def test_a_cancel_that_came_first_wins_over_a_result(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    jobs.request_cancel(db, tenant, claim.job_id)
    accepted = claims.accept(connection, [Result(claim.job_id, claim.run_token, '{"text": "x"}')])
    job = jobs.get(db, tenant, claim.job_id)
    assert accepted[claim.job_id].settled is Settled.CANCELLED
    assert job is not None and job.status == "cancelled" and job.result is None


def test_nothing_is_sent_once_a_cancel_was_asked_for(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    jobs.request_cancel(db, tenant, claim.job_id)
    assert calls.mark_sent(connection, [Intent(claim.job_id, claim.run_token, "s", "sim", "m", b"h" * 32)]) == {}
    assert connection.execute("SELECT count(*) AS n FROM ai_calls").fetchone() == {"n": 0}


def test_one_batch_settles_ours_and_leaves_the_lost(db: Database, tenant: UUID, connection: Connection) -> None:
    lost = running(db, connection, tenant)
    take_over(connection, lost.job_id)
    ours = running(db, connection, tenant)
    accepted = claims.accept(
        connection, [Result(claim.job_id, claim.run_token, '{"text": "x"}') for claim in (lost, ours)]
    )
    assert accepted[lost.job_id].settled is Settled.LOST
    assert accepted[ours.job_id].settled is Settled.DONE


def test_a_late_answer_is_kept_on_its_call_with_its_usage_and_changes_no_job(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    stale = running(db, connection, tenant)
    calls.mark_sent(connection, [Intent(stale.job_id, stale.run_token, "s", "sim", "m", b"h" * 32)])
    take_over(connection, stale.job_id)
    before = whole_row(connection, stale.job_id)
    ending = CallEnding(
        job_id=stale.job_id,
        run_token=stale.run_token,
        step="s",
        outcome="succeeded",
        cost_basis="unknown",
        usage=Usage(input_tokens=3, output_tokens=5),
        result={"text": "late"},
    )
    assert calls.finish(connection, [ending])[stale.job_id, "s"].late
    assert whole_row(connection, stale.job_id) == before
    call = connection.execute("SELECT outcome, late, accepted, output_tokens, result FROM ai_calls").fetchone()
    assert call == {
        "outcome": "succeeded",
        "late": True,
        "accepted": False,
        "output_tokens": 5,
        "result": {"text": "late"},
    }
    assert calls.finish(connection, [ending]) == {(stale.job_id, "s"): calls.Finished()}
    stored = calls.find_earlier(connection, stale.job_id, 9, "s", b"h" * 32).stored
    assert stored is not None and stored.result == {"text": "late"}
    assert calls.find_earlier(connection, stale.job_id, 9, "s", b"x" * 32).stored is None


def test_marking_sent_can_be_repeated_but_not_after_the_call_has_ended(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    claim = running(db, connection, tenant)
    intent = Intent(claim.job_id, claim.run_token, "s", "sim", "m", b"h" * 32)
    assert calls.mark_sent(connection, [intent]) == {claim.job_id: None}
    assert calls.mark_sent(connection, [intent]) == {claim.job_id: None}
    calls.finish(
        connection,
        [CallEnding(job_id=claim.job_id, run_token=claim.run_token, step="s", outcome="failed", cost_basis="none")],
    )
    assert calls.mark_sent(connection, [intent]) == {}
