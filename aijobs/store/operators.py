"""What a person may do with a job that waits for one, or that has ended: resolve it, or have it tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from aijobs.domain.jobs import Job, JobStatus
from aijobs.errors import AijobsError, Contention
from aijobs.store import ledger
from aijobs.store.calls import Stored, usage_from
from aijobs.store.db import Connection, Database, fetch_one
from aijobs.store.rows import job_from


class WrongStatus(AijobsError):
    """The job's status does not allow this."""

    def __init__(self, status: JobStatus) -> None:
        super().__init__(f"the job is {status}")
        self.status = status


class NoStoredResult(AijobsError):
    """There is no stored answer that could be the job's result."""


def resolve(
    db: Database,
    tenant_id: UUID,
    job_id: UUID,
    action: str,
    result_json: Callable[[str, Stored], str | None] = lambda kind, stored: None,
) -> Job | None:
    """Do with a held job what a person has decided: `action` is retry, fail, cancel or accept.

    `result_json` makes the result, as JSON text, from the job's kind and a stored answer, or says with None that none
    can be made. Returns None if the tenant has no such job. Raises WrongStatus, NoStoredResult, and Contention when the
    job's row stays locked. Sources: sql/jobs/resolve_{retry,fail,accept}.sql, cancel_waiting.sql.
    """
    scope: dict[str, Any] = {"tenant_id": tenant_id, "job_id": job_id}
    with db.connection() as connection, connection.transaction():
        locked = fetch_one(connection, "jobs/lock", scope)
        if locked is None:
            return None
        if locked["status"] != JobStatus.HELD:
            raise WrongStatus(JobStatus(locked["status"]))
        match action:
            case "retry":
                return _changed(connection, "jobs/resolve_retry", scope)
            case "fail":
                return _changed(connection, "jobs/resolve_fail", scope)
            case "cancel":
                return _changed(connection, "jobs/cancel_waiting", scope)
            case "accept":
                row = fetch_one(connection, "jobs/find_acceptable", scope)
                result = None
                if row is not None:
                    stored = Stored(row["attempt"], row["result"], usage_from(row))
                    result = result_json(locked["kind"], stored)
                if row is None or result is None:
                    raise NoStoredResult("no stored answer can be this job's result")
                found = {"result": result, "attempt": row["attempt"], "step": row["step"]}
                return _changed(connection, "jobs/resolve_accept", scope | found)
    raise ValueError(f"no such action: {action}")


def retry(db: Database, tenant_id: UUID, job_id: UUID) -> Job | None:
    """Put a failed or cancelled job back in line, with a fresh allowance of attempts; None for an unknown job.

    Raises WrongStatus, InsufficientBudget when the new reservation does not fit, and Contention when the job's row
    stays locked. Source: sql/jobs/retry_ended.sql.
    """
    scope = {"tenant_id": tenant_id, "job_id": job_id}
    with db.connection() as connection, connection.transaction():
        locked = fetch_one(connection, "jobs/lock", scope)
        if locked is None:
            return None
        if locked["status"] not in (JobStatus.FAILED, JobStatus.CANCELLED):
            raise WrongStatus(JobStatus(locked["status"]))
        return _changed(connection, "jobs/retry_ended", scope)


def _changed(connection: Connection, statement: str, parameters: dict[str, Any]) -> Job:
    row = fetch_one(connection, statement, parameters)
    if row is None:
        raise Contention(f"the job changed although its row was locked ({statement})")
    if row["finished_at"] is not None:
        ledger.close(connection, [row["id"]])
        scope = {"tenant_id": parameters["tenant_id"], "job_id": parameters["job_id"]}
        row = fetch_one(connection, "jobs/get", scope) or row
    return job_from(row)
