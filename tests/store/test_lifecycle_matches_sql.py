"""Each verb's statement, run on a real row in each state, does what the table in domain/lifecycle.py says."""

from __future__ import annotations

import contextlib
from uuid import UUID, uuid4

import pytest

from aijobs.domain.jobs import JobStatus
from aijobs.domain.lifecycle import Verb, after
from aijobs.domain.policy import Fail, Hold, Retry
from aijobs.store import claims, jobs, operators, upkeep
from aijobs.store.claims import Ending, Result
from aijobs.store.db import Connection, Database
from aijobs.store.operators import WrongStatus
from tests.store.make import ERROR, bring_late, claim_some, in_state, insert_answer, status_of

EXPIRES = "2099-01-01T00:00:00Z"


def token_of(connection: Connection, job_id: UUID) -> UUID:
    """The token that owns the job; for a job nobody owns, that of its last attempt, which must then be powerless."""
    row = connection.execute(
        "SELECT coalesce(j.run_token, (SELECT run_token FROM ai_attempts a WHERE a.job_id = j.id"
        " ORDER BY number DESC LIMIT 1)) AS token FROM ai_jobs j WHERE id = %s",
        [job_id],
    ).fetchone()
    return row["token"] if row is not None and row["token"] is not None else uuid4()


def apply(db: Database, connection: Connection, tenant: UUID, job_id: UUID, verb: Verb) -> None:
    token = token_of(connection, job_id)
    match verb:
        case Verb.CLAIM:
            claim_some(connection)
        case Verb.ACCEPT:
            claims.accept(connection, [Result(job_id, token, "{}")])
        case Verb.FAIL:
            claims.settle(connection, job_id, token, Ending("failed", Fail("some_code"), ERROR))
        case Verb.RETRY:
            claims.settle(connection, job_id, token, Ending("failed", Retry(0.0, counted=True), ERROR))
        case Verb.HOLD:
            claims.settle(connection, job_id, token, Ending("unknown", Hold("some_code"), ERROR))
        case Verb.SETTLE_CANCEL:
            claims.settle(connection, job_id, token, Ending("released", Retry(0.0, counted=False), None))
        case Verb.CANCEL:
            jobs.request_cancel(db, tenant, job_id)
        case Verb.EXPIRE:
            connection.execute("UPDATE ai_jobs SET expires_at = now() - interval '1 second' WHERE id = %s", [job_id])
            upkeep.expire(connection)
        case Verb.WAKE:
            bring_late(connection, job_id)
        case Verb.RESOLVE_RETRY | Verb.RESOLVE_FAIL:
            with contextlib.suppress(WrongStatus):
                operators.resolve(db, tenant, job_id, verb.removeprefix("resolve_"))
        case Verb.RESOLVE_ACCEPT:
            if status_of(connection, job_id) == "held":  # a late answer would wake it; this one was there before
                insert_answer(connection, job_id, offered=True)
            with contextlib.suppress(WrongStatus):
                operators.resolve(db, tenant, job_id, "accept", lambda kind, stored: '{"text": "kept"}')
        case Verb.RETRY_ENDED:
            with contextlib.suppress(WrongStatus):
                operators.retry(db, tenant, job_id)


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.SETTLE_CANCEL])
@pytest.mark.parametrize("status", list(JobStatus))
def test_state_by_verb(db: Database, connection: Connection, tenant: UUID, status: JobStatus, verb: Verb) -> None:
    job_id = in_state(db, connection, tenant, status, expires_at=EXPIRES)
    before = jobs.get(db, tenant, job_id)
    assert before is not None and before.status is status
    apply(db, connection, tenant, job_id, verb)
    found = jobs.get(db, tenant, job_id)
    assert found is not None
    assert found.status is after(status, verb)
    if after(status, verb) is status and (status, verb) != (JobStatus.RUNNING, Verb.CANCEL):
        assert found.version == before.version


@pytest.mark.parametrize("verb", list(Verb))
def test_a_running_job_whose_cancel_was_asked_for_can_only_be_cancelled(
    db: Database, connection: Connection, tenant: UUID, verb: Verb
) -> None:
    job_id = in_state(db, connection, tenant, JobStatus.RUNNING, expires_at=EXPIRES)
    jobs.request_cancel(db, tenant, job_id)
    apply(db, connection, tenant, job_id, verb)
    found = jobs.get(db, tenant, job_id)
    assert found is not None
    settling = verb in (Verb.ACCEPT, Verb.FAIL, Verb.RETRY, Verb.HOLD, Verb.SETTLE_CANCEL)
    expected = after(JobStatus.RUNNING, Verb.SETTLE_CANCEL, cancel_requested=True) if settling else JobStatus.RUNNING
    assert found.status is expected


@pytest.mark.parametrize("status", list(JobStatus))
def test_events_are_gapless_and_a_terminal_event_is_the_last(
    db: Database, connection: Connection, tenant: UUID, status: JobStatus
) -> None:
    job_id = in_state(db, connection, tenant, status)
    events = connection.execute(
        "SELECT e.seq, e.type, coalesce(a.event_seq, j.event_seq) AS last FROM ai_events e"
        " JOIN ai_jobs j ON j.id = e.job_id LEFT JOIN ai_attempts a ON a.job_id = j.id AND a.finished_at IS NULL"
        " WHERE e.job_id = %s ORDER BY e.seq",
        [job_id],
    ).fetchall()
    assert [event["seq"] for event in events] == list(range(1, events[-1]["last"] + 1))
    terminal = [event["type"] for event in events if event["type"] in ("job.succeeded", "job.failed", "job.cancelled")]
    assert terminal == ([f"job.{status}"] if status.terminal else [])
    assert not terminal or events[-1]["type"] == terminal[0]
