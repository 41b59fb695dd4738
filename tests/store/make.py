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
from aijobs.store import calls, claims, jobs
from aijobs.store.calls import CallEnding
from aijobs.store.claims import Ending, Result
from aijobs.store.db import Connection, Database

_numbers = itertools.count(1)
FINGERPRINT = b"f" * 32
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


def status_of(connection: Connection, job_id: UUID) -> str:
    row = connection.execute("SELECT status FROM ai_jobs WHERE id = %s", [job_id]).fetchone()
    assert row is not None
    return str(row["status"])


def insert_answer(connection: Connection, job_id: UUID, *, step: str = "late", **columns: Any) -> None:
    """A stored answer that came after the job's newest attempt had been closed."""
    given = {"late": True, "offered": False, "outcome": "succeeded", "result": '{"text": "stored"}'} | columns
    connection.execute(
        "INSERT INTO ai_calls (job_id, attempt, step, tenant_id, provider, stage, outcome, request_hash, sent_at,"
        " finished_at, late, offered, result, cost_micros, cost_basis)"
        " SELECT id, greatest(attempts, 1), %s, tenant_id, 'sim', 'finished', %s, %s, now(), now(), %s, %s, %s, %s,"
        " CASE WHEN %s::bigint IS NULL THEN 'unknown' ELSE 'reported' END"
        " FROM ai_jobs WHERE id = %s",
        [
            step,
            given["outcome"],
            FINGERPRINT,
            given["late"],
            given["offered"],
            given["result"],
            given.get("cost_micros"),
            given.get("cost_micros"),
            job_id,
        ],
    )


def bring_late(connection: Connection, job_id: UUID, *, step: str = "late", result: Any = None) -> calls.Finished:
    """The answer to a call of the job's newest attempt arrives now, whatever became of the attempt."""
    attempt = connection.execute(
        "SELECT number, run_token FROM ai_attempts WHERE job_id = %s ORDER BY number DESC LIMIT 1", [job_id]
    ).fetchone()
    if attempt is None:
        return calls.Finished()
    connection.execute(
        "INSERT INTO ai_calls (job_id, attempt, step, tenant_id, provider, stage, outcome, request_hash, sent_at,"
        " finished_at, error)"
        " SELECT id, %s, %s, tenant_id, 'sim', 'finished', 'unknown', %s, now(), now(), '{\"code\": \"worker_lost\"}'"
        " FROM ai_jobs WHERE id = %s",
        [attempt["number"], step, FINGERPRINT, job_id],
    )
    ending = CallEnding(
        job_id=job_id,
        run_token=attempt["run_token"],
        step=step,
        outcome="succeeded",
        cost_basis="unknown",
        result=result or {"text": "late"},
    )
    return calls.finish(connection, [ending])[job_id, step]
