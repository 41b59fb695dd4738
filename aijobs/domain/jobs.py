"""A job as callers see it, and as they ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID


class JobStatus(StrEnum):
    """The stored states. The last three are terminal: only an operator's retry leaves them."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class Job:
    """One row of `ai_jobs`, with the columns that the API shows.

    Times are RFC 3339 strings in UTC with microseconds, exactly as stored. `version` rises with each change that the
    body shows, and with nothing else; it is the source of the ETag.
    """

    id: UUID
    tenant_id: UUID
    status: JobStatus
    version: int
    kind: str
    queue: str
    priority: int
    attempts: int
    max_attempts: int
    cancel_requested: bool
    result: Any
    error: dict[str, Any] | None
    progress: Any
    metadata: dict[str, str]
    user_id: str | None
    trace_id: str | None
    created_at: str
    run_at: str
    started_at: str | None
    finished_at: str | None
    reserved_micros: int
    charged_micros: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a job's result is to cost its tenant: `tariff` none, fixed (`price_micros`) or metered (cost and margin).

    `reserve_micros` None: the reservation follows from the price in force, the tokens of the request and the most that
    may be answered. `on_cancel` is release or charge_delivered.
    """

    tariff: str = "none"
    price_micros: int | None = None
    margin_percent: int = 0
    on_cancel: str = "release"
    reserve_micros: int | None = 0
    input_tokens: int = 0
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A validated request for a job.

    `payload_json` and `metadata_json` are JSON texts (numbers exactly as received). `run_at` and `expires_at` are
    RFC 3339 strings or None. `request_hash` is the fingerprint that tells a replay from a conflict.
    `id` is a UUIDv7 made by the application.
    """

    id: UUID
    tenant_id: UUID
    idempotency_key: str
    request_hash: bytes
    kind: str
    provider: str | None
    model: str | None
    queue: str
    priority: int
    payload_json: str
    metadata_json: str
    user_id: str | None
    trace_id: str | None
    webhook_url: str | None
    run_at: str | None
    expires_at: str | None
    max_attempts: int
    on_unknown: str
    max_unknown_retries: int
    terms: Terms = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """What a page of jobs may be narrowed by; None means any. `metadata` must be contained in the job's."""

    status: JobStatus | None = None
    kind: str | None = None
    queue: str | None = None
    user_id: str | None = None
    metadata: dict[str, str] | None = None
