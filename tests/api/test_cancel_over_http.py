"""A cancel says whether the job has ended or will, and may be repeated."""

from __future__ import annotations

from uuid import UUID

import pytest

from aijobs.domain.jobs import JobStatus
from aijobs.store.db import Connection, Database
from tests.api.client import Client
from tests.store.make import in_state


def test_a_waiting_job_is_cancelled_at_once(client: Client) -> None:
    job = client.created()
    answered = client.post(job["links"]["cancel"])
    assert (answered.status_code, answered.json["status"]) == (200, "cancelled")
    assert answered.json["cancel_requested"] is True
    assert "Retry-After" not in answered.headers
    again = client.post(job["links"]["cancel"])
    assert (again.status_code, again.json) == (200, answered.json)


def test_a_running_job_will_be_cancelled(client: Client, db: Database, connection: Connection, tenant: UUID) -> None:
    job_id = in_state(db, connection, tenant, JobStatus.RUNNING)
    for _ in range(2):
        answered = client.post(f"/api/ai/jobs/{job_id}/cancel")
        assert (answered.status_code, answered.json["status"]) == (202, "running")
        assert answered.json["cancel_requested"] is True
        assert answered.headers["Retry-After"] == "1"


@pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED])
def test_a_finished_job_stays_as_it_is(
    client: Client, db: Database, connection: Connection, tenant: UUID, status: JobStatus
) -> None:
    job_id = in_state(db, connection, tenant, status)
    before = client.get(f"/api/ai/jobs/{job_id}")
    answered = client.post(f"/api/ai/jobs/{job_id}/cancel", data=b"anything", headers={"Idempotency-Key": "ignored"})
    assert (answered.status_code, answered.json) == (200, before.json)
    assert client.get(f"/api/ai/jobs/{job_id}").headers["ETag"] == before.headers["ETag"]
