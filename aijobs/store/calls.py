"""Calls to providers: the intent before, the answer after, and the answer of an earlier attempt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from aijobs.domain.failures import Usage
from aijobs.store.db import Connection, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class Intent:
    """A request about to leave. `request_hash` is SHA-256 over provider, model and body."""

    job_id: UUID
    run_token: UUID
    step: str
    provider: str
    model: str | None
    request_hash: bytes


def mark_sent(connection: Connection, intents: Sequence[Intent]) -> frozenset[UUID]:
    """Commit that these requests are leaving; the jobs whose request may leave. Safe to repeat.

    A job that is missing from the answer has another owner or is to be cancelled: nothing may be sent for it.
    Source: sql/calls/mark_sent.sql.
    """
    rows = fetch_all(
        connection,
        "calls/mark_sent",
        {
            "job_ids": [intent.job_id for intent in intents],
            "run_tokens": [intent.run_token for intent in intents],
            "steps": [intent.step for intent in intents],
            "providers": [intent.provider for intent in intents],
            "models": [intent.model for intent in intents],
            "request_hashes": [intent.request_hash for intent in intents],
        },
    )
    return frozenset(row["job_id"] for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnding:
    """How a call ended. `outcome` is succeeded, failed, unknown or cancelled; `result` is kept only for the first.

    `first_byte_seconds` counts from the sending. `cost_basis` is `none` when the provider did no work, else `unknown`
    until a price is applied.
    """

    job_id: UUID
    run_token: UUID
    step: str
    outcome: str
    cost_basis: str
    first_byte_seconds: float | None = None
    http_status: int | None = None
    provider_request_id: str | None = None
    provider_operation_id: str | None = None
    usage: Usage | None = None
    error: dict[str, str] | None = None
    result: Any = None


def finish(connection: Connection, endings: Sequence[CallEnding]) -> frozenset[UUID]:
    """Record how calls ended; the jobs whose answer came late, after their attempt was closed. Safe to repeat.

    Source: sql/calls/finish.sql.
    """
    rows = fetch_all(connection, "calls/finish", {"endings": json.dumps([_row(ending) for ending in endings])})
    return frozenset(row["job_id"] for row in rows if row["late"])


@dataclass(frozen=True, slots=True)
class Stored:
    """A result that an earlier attempt paid for."""

    attempt: int
    result: Any
    usage: Usage


def find_stored(connection: Connection, job_id: UUID, step: str, request_hash: bytes) -> Stored | None:
    """The result that an earlier attempt of this job has for the same step and request.

    Source: sql/calls/find_stored.sql.
    """
    row = fetch_one(connection, "calls/find_stored", {"job_id": job_id, "step": step, "request_hash": request_hash})
    if row is None:
        return None
    usage = Usage(row["input_tokens"], row["output_tokens"], row["cached_tokens"], row["reasoning_tokens"])
    return Stored(row["attempt"], row["result"], usage)


def _row(ending: CallEnding) -> dict[str, Any]:
    usage = asdict(ending.usage or Usage())
    return {
        "job_id": str(ending.job_id),
        "run_token": str(ending.run_token),
        "step": ending.step,
        "outcome": ending.outcome,
        "cost_basis": ending.cost_basis,
        "first_byte_seconds": ending.first_byte_seconds,
        "http_status": ending.http_status,
        "provider_request_id": ending.provider_request_id,
        "provider_operation_id": ending.provider_operation_id,
        "error": ending.error,
        "result": ending.result,
        **usage,
    }
