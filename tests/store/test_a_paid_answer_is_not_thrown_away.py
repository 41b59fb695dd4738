"""An answer that comes after its attempt was closed is used by an attempt to come, and is never bought again."""

from __future__ import annotations

from uuid import UUID

import pytest

from aijobs.domain.claims import Claim, Settled
from aijobs.domain.jobs import JobStatus
from aijobs.domain.policy import Backoff, Fail, Hold, Retry
from aijobs.store import calls, claims, jobs, reaping
from aijobs.store.calls import Intent
from aijobs.store.claims import Ending, Result
from aijobs.store.db import Connection, Database
from tests.store.make import ERROR, FINGERPRINT, bring_late, claim_some, insert_answer, queued, running, status_of

UNKNOWN = {"code": "reply_lost", "class": "unknown", "message": "words"}


def settle(connection: Connection, claim: Claim, decision: Fail | Hold | Retry) -> Settled:
    return claims.settle(connection, claim.job_id, claim.run_token, Ending("unknown", decision, UNKNOWN))


def test_it_wakes_a_job_in_backoff(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    settle(connection, claim, Retry(300.0, counted=True, unknown=True))
    assert claim_some(connection) == []
    assert bring_late(connection, claim.job_id) == calls.Finished(late=True, woken="default")
    (again,) = claim_some(connection)
    assert again.job_id == claim.job_id


def test_it_puts_a_held_job_back_in_line(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    settle(connection, claim, Hold("outcome_unknown"))
    assert bring_late(connection, claim.job_id).woken == "default"
    job = jobs.get(db, tenant, claim.job_id)
    assert job is not None and job.status is JobStatus.QUEUED and job.error is None
    (again,) = claim_some(connection)
    found = calls.find_earlier(connection, again.job_id, 9, "late", FINGERPRINT).stored
    assert found is not None and found.result == {"text": "late"} and found.attempt == 1


@pytest.mark.parametrize("status", ["failed", "cancelled", "succeeded", "running"])
def test_it_leaves_a_job_in_any_other_state_as_it_is(
    db: Database, tenant: UUID, connection: Connection, status: str
) -> None:
    claim = running(db, connection, tenant)
    if status == "failed":
        settle(connection, claim, Fail("some_code"))
    elif status == "cancelled":
        jobs.request_cancel(db, tenant, claim.job_id)
        settle(connection, claim, Fail("some_code"))
    elif status == "succeeded":
        claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    before = connection.execute("SELECT * FROM ai_jobs").fetchone()
    assert bring_late(connection, claim.job_id) == calls.Finished(late=True, woken=None)
    assert connection.execute("SELECT * FROM ai_jobs").fetchone() == before
    assert status_of(connection, claim.job_id) == status


def test_a_job_that_is_due_already_is_not_moved(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    settle(connection, claim, Retry(0.0, counted=True))
    assert bring_late(connection, claim.job_id) == calls.Finished(late=True, woken=None)
    assert len(claim_some(connection)) == 1


@pytest.mark.parametrize("decision", [Fail("attempts_exhausted"), Hold("outcome_unknown"), Retry(60.0, counted=True)])
def test_settling_anything_but_success_looks_for_it_first(
    db: Database, tenant: UUID, connection: Connection, decision: Fail | Hold | Retry
) -> None:
    first = running(db, connection, tenant, max_attempts=2)
    settle(connection, first, Retry(0.0, counted=True))
    (second,) = claim_some(connection)
    insert_answer(connection, first.job_id)
    assert settle(connection, second, decision) is Settled.REQUEUED
    (third,) = claim_some(connection)
    assert calls.find_earlier(connection, third.job_id, 9, "late", FINGERPRINT).stored is not None
    # The attempt that was made for the answer is beyond the allowance, and not counted.
    accepted = claims.accept(connection, [Result(third.job_id, third.run_token, "{}", used=((2, "late"),))])
    assert accepted[third.job_id].settled is Settled.DONE
    row = connection.execute("SELECT attempts, attempts_counted, max_attempts FROM ai_jobs").fetchone()
    assert row == {"attempts": 3, "attempts_counted": 2, "max_attempts": 2}
    assert connection.execute("SELECT accepted FROM ai_calls").fetchone() == {"accepted": True}


def test_an_attempt_is_made_for_it_once(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    insert_answer(connection, claim.job_id)
    settle(connection, claim, Fail("some_code"))
    (again,) = claim_some(connection)
    settle(connection, again, Fail("some_code"))
    assert status_of(connection, claim.job_id) == "failed"


@pytest.mark.parametrize(
    "columns", [{"offered": True}, {"late": False}, {"outcome": "failed", "result": None}], ids=str
)
def test_what_was_given_out_already_or_brought_nothing_makes_no_attempt(
    db: Database, tenant: UUID, connection: Connection, columns: dict[str, object]
) -> None:
    claim = running(db, connection, tenant)
    insert_answer(connection, claim.job_id, **columns)
    settle(connection, claim, Fail("some_code"))
    assert status_of(connection, claim.job_id) == "failed"


def test_the_reaper_looks_for_it_before_it_holds(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant, on_unknown="hold")
    insert_answer(connection, claim.job_id)
    ending = Ending("unknown", Hold("outcome_unknown"), ERROR)
    reaping.release_dead(connection, worker_id="w1", end=lambda dead: ending)
    assert status_of(connection, claim.job_id) == "queued"


def test_a_cancel_wins_over_it(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    insert_answer(connection, claim.job_id)
    jobs.request_cancel(db, tenant, claim.job_id)
    assert settle(connection, claim, Fail("some_code")) is Settled.CANCELLED


def test_a_job_past_its_expiry_is_not_brought_back(db: Database, tenant: UUID, connection: Connection) -> None:
    claim = running(db, connection, tenant)
    insert_answer(connection, claim.job_id)
    settle(connection, claim, Fail("deadline_exceeded"))
    assert status_of(connection, claim.job_id) == "failed"


def test_a_refused_answer_is_never_used_again_and_changes_the_key(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    claim = running(db, connection, tenant)
    insert_answer(connection, claim.job_id, step="draft", late=False)
    before = calls.find_earlier(connection, claim.job_id, 9, "draft", FINGERPRINT)
    assert before.stored is not None and before.rejected == 0
    calls.reject(connection, claim.job_id, claim.run_token, ["draft"])
    after = calls.find_earlier(connection, claim.job_id, 9, "draft", FINGERPRINT)
    assert after == calls.Earlier(None, None, 1)
    accepted = claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    assert accepted[claim.job_id].settled is Settled.DONE
    assert connection.execute("SELECT accepted FROM ai_calls").fetchone() == {"accepted": False}


@pytest.mark.parametrize(
    ("ask_by", "operation", "askable", "deduplicated"),
    [
        (None, None, False, False),
        ("operation", None, False, False),
        ("operation", "resp_1", True, False),
        ("key", None, True, False),
        ("repeat", None, False, True),
    ],
)
def test_the_reaper_knows_whether_the_provider_can_be_asked(
    db: Database,
    tenant: UUID,
    connection: Connection,
    ask_by: str | None,
    operation: str | None,
    askable: bool,
    deduplicated: bool,
) -> None:
    claim = running(db, connection, tenant, on_unknown="hold", max_attempts=2)
    calls.mark_sent(
        connection,
        [Intent(claim.job_id, claim.run_token, "s", "sim", "m", FINGERPRINT, dedupe_key="k", ask_by=ask_by)],
    )
    if operation is not None:
        assert calls.note_operation(connection, claim.job_id, claim.run_token, "s", operation)
    seen = []

    def end(dead: object) -> Ending:
        from workers.reaper import ending_of

        seen.append(dead)
        return ending_of(dead, {"noop": Backoff()})  # type: ignore[arg-type]

    reaping.release_dead(connection, worker_id="w1", end=end)
    (dead,) = seen
    assert (dead.sent, dead.askable, dead.deduplicated) == (True, askable, deduplicated)  # type: ignore[attr-defined]
    assert status_of(connection, claim.job_id) == ("queued" if askable or deduplicated else "held")
    lost = calls.find_earlier(connection, claim.job_id, 9, "s", FINGERPRINT).lost
    assert (lost is not None) is askable
    if lost is not None:
        assert lost.operation_id == operation and lost.dedupe_key == "k" and lost.run_token == claim.run_token
        calls.note_asked(connection, claim.job_id, lost.run_token, "s", "not_sent")
        assert calls.find_earlier(connection, claim.job_id, 9, "s", FINGERPRINT).lost is None


def test_an_id_that_comes_after_the_attempt_was_closed_is_kept(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    claim = running(db, connection, tenant)
    calls.mark_sent(
        connection,
        [Intent(claim.job_id, claim.run_token, "s", "sim", "m", FINGERPRINT, dedupe_key="k", ask_by="operation")],
    )
    ending = Ending("unknown", Retry(0.0, counted=True), ERROR)
    reaping.release_dead(connection, worker_id="w1", end=lambda dead: ending)
    assert calls.note_operation(connection, claim.job_id, claim.run_token, "s", "resp_9")
    row = connection.execute("SELECT stage, outcome, provider_operation_id AS id FROM ai_calls").fetchone()
    assert row == {"stage": "finished", "outcome": "unknown", "id": "resp_9"}


def test_what_the_provider_says_replaces_unknown_and_is_not_offered_twice(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    job = queued(db, tenant)
    (first,) = claim_some(connection)
    calls.mark_sent(
        connection, [Intent(job.id, first.run_token, "s", "sim", "m", FINGERPRINT, dedupe_key="k", ask_by="key")]
    )
    ending = Ending("unknown", Retry(0.0, counted=True), ERROR)
    reaping.release_dead(connection, worker_id="w1", end=lambda dead: ending)
    (second,) = claim_some(connection)
    found = calls.CallEnding(
        job_id=job.id, run_token=first.run_token, step="s", outcome="succeeded", cost_basis="unknown", result={"n": 1}
    )
    assert calls.finish_late(connection, found, offered=True).late
    settle(connection, second, Fail("some_code"))
    assert status_of(connection, job.id) == "failed"
