"""What a worker holds, and what a settlement came to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How often a job may still be tried: all that the policy needs to know of it."""

    attempts: int  # claims so far, this one included
    max_attempts: int
    attempts_counted: int  # before this attempt ends
    on_unknown: str  # retry | hold | fail
    unknown_retries: int
    max_unknown_retries: int
    unsent_deaths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One attempt of one job, owned under `run_token`. Every later write names the token.

    `expires_in_seconds`, `waited_seconds` and `age_seconds` are durations as of the claim, by the database's clock.
    """

    job_id: UUID
    tenant_id: UUID
    run_token: UUID
    kind: str
    provider: str | None
    model: str | None
    queue: str
    payload: Any
    trace_id: str | None
    allowance: Allowance
    expires_in_seconds: float | None
    waited_seconds: float
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadAttempt:
    """A running job whose worker is gone or silent, locked by the reaper. `sent`: a provider may have the request.

    `askable`: the provider can be asked what became of it. `deduplicated`: it does the same request only once.
    """

    job_id: UUID
    run_token: UUID
    attempt: int
    kind: str
    queue: str
    allowance: Allowance
    sent: bool
    askable: bool
    deduplicated: bool
    cancel_requested: bool
    expired: bool


class Settled(StrEnum):
    """What became of an attempt to settle a job."""

    DONE = "done"
    REQUEUED = "requeued for an answer that was paid for"  # instead of what was asked for
    HELD = "held: a call may have been paid for"  # instead of what was asked for
    ALREADY = "already"  # an earlier try of this same settlement had been committed
    CANCELLED = "cancelled"  # a cancel was asked for first, so the job ended as cancelled
    LOST = "lost"  # another token owns the job, or the reaper has closed this attempt
