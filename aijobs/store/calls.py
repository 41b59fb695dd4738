"""Calls to providers: the intent before, the answer after, and the answer of an earlier attempt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from uuid import UUID

from aijobs.domain.failures import Usage
from aijobs.domain.money import Price
from aijobs.store.db import Connection, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class Intent:
    """A request about to leave. `request_hash` is SHA-256 over provider, model and body.

    `ask_by` says how the provider can be asked about it if its answer is lost: operation, key, repeat or not at all.
    The tokens are what it may cost at most: an estimate of what is read, and the most that may be written, if bounded.
    """

    job_id: UUID
    run_token: UUID
    step: str
    provider: str
    model: str | None
    request_hash: bytes
    dedupe_key: str | None = None
    ask_by: str | None = None
    input_tokens: int = 0
    max_output_tokens: int | None = None


def mark_sent(connection: Connection, intents: Sequence[Intent]) -> dict[UUID, Price | None]:
    """Commit that these requests are leaving; the jobs whose request may leave, with the price in force. Repeatable.

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
            "dedupe_keys": [intent.dedupe_key for intent in intents],
            "ask_bys": [intent.ask_by for intent in intents],
            "inputs": [intent.input_tokens for intent in intents],
            "outputs": [intent.max_output_tokens for intent in intents],
        },
    )
    return {row["job_id"]: price_from(row) for row in rows}


def price_from(row: Mapping[str, Any]) -> Price | None:
    """The price in a row that may have one."""
    if row["price_id"] is None:
        return None
    return Price(**{item.name: row[item.name] for item in fields(Price)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnding:
    """How a call ended. `outcome` is succeeded, failed, unknown or cancelled; `result` is kept only for the first.

    `first_byte_seconds` counts from the sending. `cost_micros` None is unknown; `cost_basis` says how it is known, and
    is `none` when the provider did no work.
    """

    job_id: UUID
    run_token: UUID
    step: str
    outcome: str
    cost_basis: str
    cost_micros: int | None = None
    first_byte_seconds: float | None = None
    http_status: int | None = None
    provider_request_id: str | None = None
    provider_operation_id: str | None = None
    usage: Usage | None = None
    error: dict[str, str] | None = None
    result: Any = None
    provider_cancel: str = "not_sent"


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a report. `late`: its attempt had been closed; `woken`: the queue of a job it brought back."""

    late: bool = False
    woken: str | None = None


def finish(connection: Connection, endings: Sequence[CallEnding]) -> dict[tuple[UUID, str], Finished]:
    """Record how calls ended, by job and step. Safe to repeat: what is known already is left as it is.

    Sources: sql/calls/finish.sql for those that are open, finish_late.sql for those that were closed before.
    """
    rows = fetch_all(connection, "calls/finish", {"endings": json.dumps([_row(ending) for ending in endings])})
    finished = {(row["job_id"], row["step"]): Finished() for row in rows}
    for ending in endings:
        if (ending.job_id, ending.step) not in finished:
            finished[ending.job_id, ending.step] = finish_late(connection, ending, offered=False)
    return finished


def finish_late(connection: Connection, ending: CallEnding, *, offered: bool) -> Finished:
    """Record what became of a call that was closed as unknown. Sources: sql/calls/lock_job.sql, finish_late.sql.

    `offered`: the answer is already in the hands of the attempt that asked for it.
    """
    parameters = _row(ending) | {
        "offered": offered,
        "error": None if ending.error is None else json.dumps(ending.error),
        "result": None if ending.result is None else json.dumps(ending.result),
    }
    with connection.transaction():
        fetch_one(connection, "calls/lock_job", {"job_id": ending.job_id})
        row = fetch_one(connection, "calls/finish_late", parameters)
    return Finished() if row is None else Finished(late=True, woken=row["queue"])


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer that an earlier attempt has paid for, as it was stored."""

    attempt: int
    result: Any
    usage: Usage


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call of an earlier attempt whose answer was lost, and that the provider can be asked about."""

    attempt: int
    run_token: UUID
    operation_id: str | None
    dedupe_key: str | None
    age_seconds: float
    price: Price | None


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier attempts left of a step. `rejected` counts the answers that the handler refused.

    `forsaken`: the request is a new one, while a call for another may still be asked about.
    """

    stored: Stored | None = None
    lost: LostCall | None = None
    rejected: int = 0
    forsaken: bool = False


def find_earlier(connection: Connection, job_id: UUID, attempt: int, step: str, request_hash: bytes) -> Earlier:
    """What those before this attempt of a job left of the same step and request. Source: sql/calls/find_earlier.sql."""
    parameters = {"job_id": job_id, "attempt": attempt, "step": step, "request_hash": request_hash}
    row = fetch_one(connection, "calls/find_earlier", parameters)
    if row is None:
        raise AssertionError("calls/find_earlier always has one row")
    stored = lost = None
    if row["stored_attempt"] is not None:
        stored = Stored(row["stored_attempt"], row["result"], usage_from(row))
    if row["lost_attempt"] is not None:
        lost = LostCall(
            row["lost_attempt"],
            row["lost_run_token"],
            row["provider_operation_id"],
            row["dedupe_key"],
            row["age_seconds"],
            price_from(row),
        )
    return Earlier(stored, lost, row["rejected"], row["forsaken"])


def usage_from(row: Mapping[str, Any]) -> Usage:
    """The tokens of a call's row."""
    return Usage(
        row["input_tokens"],
        row["output_tokens"],
        row["cached_tokens"],
        row["reasoning_tokens"],
        row["cache_write_tokens"],
    )


def note_operation(connection: Connection, job_id: UUID, run_token: UUID, step: str, operation_id: str) -> bool:
    """Record the provider's id for a call under way. Safe to repeat. Source: sql/calls/note_operation.sql."""
    parameters = {"job_id": job_id, "run_token": run_token, "step": step, "operation_id": operation_id}
    return fetch_one(connection, "calls/note_operation", parameters) is not None


def note_asked(connection: Connection, job_id: UUID, run_token: UUID, step: str, provider_cancel: str) -> None:
    """Record that the provider was asked about a lost call in vain. Source: sql/calls/note_asked.sql."""
    parameters = {"job_id": job_id, "run_token": run_token, "step": step, "provider_cancel": provider_cancel}
    fetch_one(connection, "calls/note_asked", parameters)


def forsake(connection: Connection, job_id: UUID, run_token: UUID) -> None:
    """Record that this attempt will not ask about what its predecessors left open. Source: sql/calls/forsake.sql."""
    fetch_all(connection, "calls/forsake", {"job_id": job_id, "run_token": run_token})


@dataclass(frozen=True, slots=True)
class Stray:
    """A call that its provider works on for a job that was cancelled meanwhile."""

    job_id: UUID
    attempt: int
    step: str
    provider: str
    operation_id: str


def take_strays(connection: Connection, providers: Sequence[str], *, limit: int) -> list[Stray]:
    """Calls of these providers to be stopped, each given out once. Source: sql/calls/take_strays.sql."""
    rows = fetch_all(connection, "calls/take_strays", {"providers": list(providers), "limit": limit})
    return [
        Stray(row["job_id"], row["attempt"], row["step"], row["provider"], row["provider_operation_id"]) for row in rows
    ]


def note_cancel(connection: Connection, stray: Stray, provider_cancel: str) -> None:
    """Record what the provider answered: confirmed, failed or unsupported. Source: sql/calls/note_cancel.sql."""
    parameters = {"job_id": stray.job_id, "attempt": stray.attempt, "step": stray.step}
    fetch_one(connection, "calls/note_cancel", parameters | {"provider_cancel": provider_cancel})


def reject(connection: Connection, job_id: UUID, run_token: UUID, steps: Sequence[str]) -> None:
    """Mark the answers of these steps as refused by the handler. Safe to repeat. Source: sql/calls/reject.sql."""
    for step in steps:
        fetch_all(connection, "calls/reject", {"job_id": job_id, "run_token": run_token, "step": step})


def _row(ending: CallEnding) -> dict[str, Any]:
    usage = asdict(ending.usage or Usage())
    return {
        "job_id": str(ending.job_id),
        "run_token": str(ending.run_token),
        "step": ending.step,
        "outcome": ending.outcome,
        "cost_basis": ending.cost_basis,
        "cost_micros": 0 if ending.cost_basis == "none" else ending.cost_micros,
        "first_byte_seconds": ending.first_byte_seconds,
        "http_status": ending.http_status,
        "provider_request_id": ending.provider_request_id,
        "provider_operation_id": ending.provider_operation_id,
        "provider_cancel": ending.provider_cancel,
        "error": ending.error,
        "result": ending.result,
        **usage,
    }
