"""Jobs as their tenant sees them: create, read, list, cancel. Each function is scoped by the tenant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from aijobs.domain.jobs import Job, JobStatus, ListFilter, NewJob
from aijobs.errors import Contention, NoKnownPrice
from aijobs.store import ledger
from aijobs.store.db import Connection, Database, fetch_all, fetch_one
from aijobs.store.rows import attempts_from, job_from


class CreateOutcome(StrEnum):
    CREATED = "created"
    REPLAYED = "replayed"  # the key had made this same request before
    CONFLICT = "conflict"  # the key had made another request


@dataclass(frozen=True, slots=True)
class Created:
    """What a create came to. `job` is the new job, or the one that the key had made before."""

    outcome: CreateOutcome
    job: Job


def create(db: Database, new: NewJob) -> Created:
    """Create a job, once per tenant and key. It is committed when this returns.

    Raises StoreUnavailable, Contention when another transaction holds the key for too long, InsufficientBudget and
    NoKnownPrice for a tenant with a budget, and LookupError for one that does not exist. Source: sql/jobs/create.sql.
    """
    with db.connection() as connection:
        row = fetch_one(connection, "jobs/create", _create_parameters(new))
        if row is not None:
            return Created(CreateOutcome.CREATED, job_from(row))
        row = _find_by_key(connection, new.tenant_id, new.idempotency_key)
        if row is None and fetch_one(connection, "ledger/balance", {"tenant_id": new.tenant_id}) is not None:
            raise NoKnownPrice(f"the kind {new.kind!r} has no known price")
        if row is None:
            raise LookupError(f"no tenant {new.tenant_id}")
    same = bytes(row["request_hash"]) == new.request_hash
    return Created(CreateOutcome.REPLAYED if same else CreateOutcome.CONFLICT, job_from(row))


def find_by_key(db: Database, tenant_id: UUID, key: str) -> tuple[bytes, Job] | None:
    """The request hash and job that a key made, or None. Source: sql/jobs/find_by_key.sql."""
    with db.connection() as connection:
        row = _find_by_key(connection, tenant_id, key)
    return None if row is None else (bytes(row["request_hash"]), job_from(row))


def get(db: Database, tenant_id: UUID, job_id: UUID) -> Job | None:
    """One job of the tenant; None for an unknown id and for another tenant's alike. Source: sql/jobs/get.sql."""
    with db.connection() as connection:
        row = fetch_one(connection, "jobs/get", {"tenant_id": tenant_id, "job_id": job_id})
    return None if row is None else job_from(row)


def list_page(db: Database, tenant_id: UUID, *, filters: ListFilter, before: UUID | None, limit: int) -> list[Job]:
    """Up to `limit` jobs, newest first, older than the id `before`. Source: sql/jobs/list_page.sql."""
    parameters = {
        "tenant_id": tenant_id,
        "before": before,
        "limit": limit,
        "status": filters.status,
        "kind": filters.kind,
        "queue": filters.queue,
        "user_id": filters.user_id,
        "metadata": None if filters.metadata is None else json.dumps(filters.metadata),
    }
    with db.connection() as connection:
        return [job_from(row) for row in fetch_all(connection, "jobs/list_page", parameters)]


def attempts(db: Database, tenant_id: UUID, job_id: UUID) -> list[dict[str, Any]] | None:
    """The attempts of one job with their calls, oldest first; None if the tenant has no such job.

    Source: sql/jobs/attempts.sql.
    """
    scope = {"tenant_id": tenant_id, "job_id": job_id}
    with db.connection() as connection:
        if fetch_one(connection, "jobs/get", scope) is None:
            return None
        return attempts_from(fetch_all(connection, "jobs/attempts", scope))


def request_cancel(db: Database, tenant_id: UUID, job_id: UUID) -> Job | None:
    """Cancel a waiting job now, ask a running one to end as cancelled, leave a finished one as it is.

    Returns the job as it then stands, None if the tenant has no such job. A job that is `running` afterwards will end
    as cancelled and as nothing else. Raises Contention when the job's row stays locked.
    Sources: sql/jobs/lock.sql, cancel_waiting.sql, request_cancel.sql.
    """
    scope = {"tenant_id": tenant_id, "job_id": job_id}
    with db.connection() as connection, connection.transaction():
        locked = fetch_one(connection, "jobs/lock", scope)
        if locked is None:
            return None
        return job_from(_cancel_locked(connection, scope, JobStatus(locked["status"]), locked["cancel_requested"]))


def _cancel_locked(
    connection: Connection, scope: Mapping[str, Any], status: JobStatus, cancel_requested: bool
) -> Mapping[str, Any]:
    if status in (JobStatus.QUEUED, JobStatus.HELD):
        statement = "jobs/cancel_waiting"
    elif status is JobStatus.RUNNING and not cancel_requested:
        statement = "jobs/request_cancel"
    else:
        statement = "jobs/get"
    row = fetch_one(connection, statement, scope)
    if row is None:
        raise Contention(f"the job changed although its row was locked ({statement})")
    if statement != "jobs/cancel_waiting":
        return row
    ledger.close(connection, [row["id"]])
    return fetch_one(connection, "jobs/get", scope) or row


def ping(db: Database) -> None:
    """Raise StoreUnavailable unless the database answers."""
    with db.connection() as connection:
        fetch_one(connection, "upkeep/ping", {})


def _find_by_key(connection: Connection, tenant_id: UUID, key: str) -> dict[str, Any] | None:
    # Planned anew each time: a plan that was kept from when the tenant had a handful of jobs has been seen to read all
    # of its jobs for one key, by the index of their ids, for as long as the session lasted.
    parameters = {"tenant_id": tenant_id, "idempotency_key": key}
    return fetch_one(connection, "jobs/find_by_key", parameters, keep_plan=False)


def _create_parameters(new: NewJob) -> dict[str, object]:
    return {
        "id": new.id,
        "tenant_id": new.tenant_id,
        "idempotency_key": new.idempotency_key,
        "request_hash": new.request_hash,
        "kind": new.kind,
        "provider": new.provider,
        "model": new.model,
        "queue": new.queue,
        "priority": new.priority,
        "payload": new.payload_json,
        "metadata": new.metadata_json,
        "user_id": new.user_id,
        "trace_id": new.trace_id,
        "webhook_url": new.webhook_url,
        "run_at": new.run_at,
        "expires_at": new.expires_at,
        "max_attempts": new.max_attempts,
        "on_unknown": new.on_unknown,
        "max_unknown_retries": new.max_unknown_retries,
        "tariff": new.terms.tariff,
        "price_micros": new.terms.price_micros,
        "margin_percent": new.terms.margin_percent,
        "on_cancel": new.terms.on_cancel,
        "reserve_micros": new.terms.reserve_micros,
        "input_tokens": new.terms.input_tokens,
        "output_tokens": new.terms.output_tokens,
    }
