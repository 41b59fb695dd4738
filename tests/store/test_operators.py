"""What a person may do: resolve a held job, and have an ended one tried again."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from aijobs.domain.jobs import JobStatus
from aijobs.store import claims, jobs, operators
from aijobs.store.calls import Stored
from aijobs.store.claims import Result
from aijobs.store.db import Connection, Database
from aijobs.store.operators import NoStoredResult, WrongStatus
from tests.store.make import claim_some, in_state, insert_answer, uuid7


def as_result(kind: str, stored: Stored) -> str | None:
    return json.dumps({"kind": kind, "text": stored.result["text"]})


@pytest.mark.parametrize(
    ("action", "status"), [("retry", "queued"), ("fail", "failed"), ("cancel", "cancelled"), ("accept", "succeeded")]
)
def test_a_held_job_is_resolved(db: Database, tenant: UUID, connection: Connection, action: str, status: str) -> None:
    job_id = in_state(db, connection, tenant, JobStatus.HELD)
    insert_answer(connection, job_id, offered=True)
    job = operators.resolve(db, tenant, job_id, action, as_result)
    assert job is not None and job.status == status
    if action == "accept":
        assert job.result == {"kind": "noop", "text": "stored"} and job.error is None
        row = connection.execute(
            "SELECT c.accepted AS call, a.accepted AS attempt FROM ai_calls c"
            " JOIN ai_attempts a ON a.job_id = c.job_id AND a.number = c.attempt"
        ).fetchone()
        assert row == {"call": True, "attempt": True}
    if action == "fail":
        assert job.error is not None and job.error["code"] == "some_code"
    if action == "retry":
        assert len(claim_some(connection)) == 1
    with pytest.raises(WrongStatus):
        operators.resolve(db, tenant, job_id, action, as_result)


def test_accepting_needs_an_answer_that_can_be_the_result(db: Database, tenant: UUID, connection: Connection) -> None:
    job_id = in_state(db, connection, tenant, JobStatus.HELD)
    with pytest.raises(NoStoredResult):
        operators.resolve(db, tenant, job_id, "accept", as_result)
    insert_answer(connection, job_id, offered=True)
    with pytest.raises(NoStoredResult):
        operators.resolve(db, tenant, job_id, "accept")
    job = jobs.get(db, tenant, job_id)
    assert job is not None and job.status is JobStatus.HELD


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELLED])
def test_an_ended_job_begins_a_new_stay_with_a_fresh_allowance(
    db: Database, tenant: UUID, connection: Connection, status: JobStatus
) -> None:
    job_id = in_state(db, connection, tenant, status, max_attempts=1)
    job = operators.retry(db, tenant, job_id)
    assert job is not None and job.status is JobStatus.QUEUED and job.error is None and not job.cancel_requested
    assert job.attempts == 1 and job.finished_at is None
    (claim,) = claim_some(connection)
    assert claim.allowance.attempts == 2 and claim.allowance.attempts_counted == 0
    claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    events = connection.execute("SELECT seq, type FROM ai_events ORDER BY seq").fetchall()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["type"] for event in events if event["type"] == "job.queued"] == ["job.queued"] * 2
    rows = connection.execute("SELECT number, stay FROM ai_attempts ORDER BY number").fetchall()
    assert rows == [{"number": 1, "stay": 1}, {"number": 2, "stay": 2}]


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.HELD, JobStatus.SUCCEEDED])
def test_a_job_that_has_not_failed_cannot_be_tried_again(
    db: Database, tenant: UUID, connection: Connection, status: JobStatus
) -> None:
    job_id = in_state(db, connection, tenant, status)
    with pytest.raises(WrongStatus, match=status):
        operators.retry(db, tenant, job_id)


def test_a_passed_expiry_does_not_end_the_new_stay_at_once(db: Database, tenant: UUID, connection: Connection) -> None:
    job_id = in_state(db, connection, tenant, JobStatus.FAILED)
    connection.execute("UPDATE ai_jobs SET expires_at = now() - interval '1 hour'")
    operators.retry(db, tenant, job_id)
    assert len(claim_some(connection)) == 1


def test_another_tenants_job_does_not_exist(db: Database, tenant: UUID, connection: Connection) -> None:
    job_id = in_state(db, connection, tenant, JobStatus.HELD)
    assert operators.resolve(db, uuid7(), job_id, "retry") is None
    assert operators.retry(db, uuid7(), job_id) is None
