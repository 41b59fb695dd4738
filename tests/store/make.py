"""Jobs in any state, made by the product's own statements."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any
from uuid import UUID

from aijobs.domain.claims import Claim
from aijobs.domain.jobs import Job, JobStatus, NewJob
from aijobs.domain.policy import Fail, Hold
from aijobs.store import claims, jobs
from aijobs.store.claims import Ending, Result
from aijobs.store.db import Connection, Database

_numbers = itertools.count(1)
HASH = b"\x01" + b"h" * 32
ERROR = {"code": "some_code", "class": "permanent", "message": "words"}


def uuid7() -> UUID:
    raw = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10))
    raw[6], raw[8] = raw[6] & 0x0F | 0x70, raw[8] & 0x3F | 0x80
    return UUID(bytes=bytes(raw))


def new_job(tenant: UUID, **given: Any) -> NewJob:
    fresh: dict[str, Any] = {
        "id": uuid7(),
        "tenant_id": tenant,
        "idempotency_key": f"key-{os.getpid()}-{next(_numbers)}",
        "request_hash": HASH,
        "kind": "noop",
        "provider": "sim",
        "model": "m",
        "queue": "default",
        "priority": 0,
        "payload_json": '{"n": 1}',
        "metadata_json": "{}",
        "user_id": None,
        "trace_id": None,
        "webhook_url": None,
        "run_at": None,
        "expires_at": None,
        "max_attempts": 3,
        "on_unknown": "retry",
        "max_unknown_retries": 1,
    }
    return NewJob(**(fresh | given))


def queued(db: Database, tenant: UUID, **given: Any) -> Job:
    return jobs.create(db, new_job(tenant, **given)).job


def claim_some(
    connection: Connection, slots: int = 1, worker: str = "w1", lease: float = 60.0, queues: Any = None
) -> list[Claim]:
    found = claims.claim(connection, worker_id=worker, lease_seconds=lease, queues=queues, kinds=["noop"], slots=slots)
    return found.claims


def running(db: Database, connection: Connection, tenant: UUID, **given: Any) -> Claim:
    """A claimed job. It must be the only one in line."""
    queued(db, tenant, **given)
    (claim,) = claim_some(connection)
    return claim


def in_state(db: Database, connection: Connection, tenant: UUID, status: JobStatus, **given: Any) -> UUID:
    """The id of a job in the given state, with an attempt behind it unless it is queued."""
    if status is JobStatus.QUEUED:
        return queued(db, tenant, **given).id
    claim = running(db, connection, tenant, **given)
    match status:
        case JobStatus.RUNNING:
            pass
        case JobStatus.SUCCEEDED:
            claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
        case JobStatus.FAILED:
            claims.settle(connection, claim.job_id, claim.run_token, Ending("failed", Fail("some_code"), ERROR))
        case JobStatus.HELD:
            claims.settle(connection, claim.job_id, claim.run_token, Ending("unknown", Hold("some_code"), ERROR))
        case JobStatus.CANCELLED:
            jobs.request_cancel(db, tenant, claim.job_id)
            claims.accept(connection, [Result(claim.job_id, claim.run_token, "{}")])
    return claim.job_id
