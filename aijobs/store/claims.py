"""Owning a job: claim it, keep the lease, settle it. Every write is fenced by run_token.

These functions take a connection and not the pool: a worker process gives each of its few threads one of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from psycopg import Rollback

from aijobs.domain.claims import Allowance, Claim, Settled
from aijobs.domain.policy import Decision, Fail, Hold, Retry, unless_left_open
from aijobs.errors import Contention
from aijobs.store import gates, ledger
from aijobs.store.db import Connection, fetch_all, fetch_one

NO_KEYS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClaimRound:
    """What one claim brought. `next_due_seconds`: until the next delayed job is due; None if none waits.

    `troubled`: those of our providers that have refused something; `probe_due`: one whose shut gate may be tried now.
    """

    claims: list[Claim]
    reaper_vacant: bool
    courier_vacant: bool
    next_due_seconds: float | None
    troubled: frozenset[str]
    probe_due: str | None


def claim(
    connection: Connection,
    *,
    worker_id: str,
    lease_seconds: float,
    queues: Sequence[str] | None,
    kinds: Sequence[str],
    slots: int,
    keys: Mapping[str, str] = NO_KEYS,
    only_provider: str | None = None,
) -> ClaimRound:
    """Claim up to `slots` due jobs; `queues` None means all. Source: sql/claims/claim.sql, the heart of it.

    `keys` has the fingerprint of our key by provider: jobs behind a shut gate are left, unless it is `only_provider`'s.
    """
    rows = fetch_all(
        connection,
        "claims/claim",
        {
            "worker_id": worker_id,
            "lease_seconds": lease_seconds,
            "queues": None if queues is None else list(queues),
            "kinds": list(kinds),
            "slots": slots,
            "providers": list(keys),
            "key_fingerprints": list(keys.values()),
            "only_provider": only_provider,
        },
    )
    return ClaimRound(
        claims=[_claim_from(row) for row in rows if row["id"] is not None],
        reaper_vacant=rows[0]["reaper_vacant"],
        courier_vacant=rows[0]["courier_vacant"],
        next_due_seconds=rows[0]["next_due_seconds"],
        troubled=frozenset(rows[0]["troubled"]),
        probe_due=rows[0]["probe_due"],
    )


def claim_probe(connection: Connection, *, provider: str, keys: Mapping[str, str], **given: Any) -> list[Claim]:
    """Claim one job with which to try a shut gate; none if no probe is due, or no job waits. See `claim` for the rest.

    Sources: sql/gates/take_probe.sql, sql/claims/claim.sql.
    """
    found: list[Claim] = []
    with connection.transaction() as undoable:
        if gates.take_probe(connection, provider=provider, key_fingerprint=keys[provider]):
            found = claim(connection, **given, slots=1, keys=keys, only_provider=provider).claims
            if not found:
                raise Rollback(undoable)  # a probe that nobody can make is not used up
    return found


def promote(connection: Connection) -> int:
    """Put delayed jobs whose time has come in line; how many. Source: sql/claims/promote.sql."""
    return len(fetch_all(connection, "claims/promote", {}))


@dataclass(frozen=True, slots=True)
class Extension:
    """What a heartbeat learnt. A job in none of the sets is unconfirmed: its row was locked, so ask again soon."""

    confirmed: frozenset[UUID]
    lost: frozenset[UUID]
    cancel_requested: frozenset[UUID]


def extend(connection: Connection, held: Sequence[tuple[UUID, UUID]], *, lease_seconds: float) -> Extension:
    """Extend the leases of (job id, run token) pairs. Source: sql/claims/extend.sql."""
    rows = fetch_all(
        connection,
        "claims/extend",
        {
            "job_ids": [job_id for job_id, _ in held],
            "run_tokens": [run_token for _, run_token in held],
            "lease_seconds": lease_seconds,
        },
    )
    return Extension(
        confirmed=frozenset(row["id"] for row in rows if row["ours"]),
        lost=frozenset(row["id"] for row in rows if not row["ours"]),
        cancel_requested=frozenset(row["id"] for row in rows if row["cancel_requested"]),
    )


@dataclass(frozen=True, slots=True)
class Result:
    """A result to accept, as JSON text. `used` names the answers of earlier attempts in it: attempt and step."""

    job_id: UUID
    run_token: UUID
    result_json: str
    used: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of one result. The durations, in seconds, and `attempts` are known only when it is DONE."""

    settled: Settled
    age_seconds: float = 0.0
    run_seconds: float = 0.0
    attempts: int = 0


def accept(connection: Connection, results: Sequence[Result]) -> dict[UUID, Accepted]:
    """Accept results, many in one commit; safe to repeat. Source: sql/claims/accept.sql."""
    rows = fetch_all(
        connection,
        "claims/accept",
        {
            "job_ids": [result.job_id for result in results],
            "run_tokens": [result.run_token for result in results],
            "results": [result.result_json for result in results],
            "used": json.dumps(
                [
                    {"job_id": str(result.job_id), "attempt": attempt, "step": step}
                    for result in results
                    for attempt, step in result.used
                ]
            ),
        },
    )
    outcome = {
        row["id"]: Accepted(Settled.DONE, row["age_seconds"], row["run_seconds"], row["attempts"]) for row in rows
    }
    for result in results:
        if result.job_id not in outcome:
            with connection.transaction():
                refused = _refused(
                    connection, result.job_id, result.run_token, outcome="succeeded", counted=True, error=None
                )
            outcome[result.job_id] = Accepted(refused)
    return outcome


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt that brought no result ends: its own outcome, and what is decided for the job.

    `outcome` is failed, unknown, cancelled or released. `error` has code, class and message, or is None.
    """

    outcome: str
    decision: Decision
    error: dict[str, str] | None


def settle(
    connection: Connection, job_id: UUID, run_token: UUID, ending: Ending, *, closes_books: bool = True
) -> Settled:
    """Fail, retry or hold the job by the ending's decision; cancel it instead if that was asked for. Safe to repeat.

    Where a paid answer has come late that no attempt has been given, the job goes back in line for it instead: what is
    paid for is not thrown away, and not bought again. A job past its expires_at is not. Whoever settles several jobs in
    one transaction closes their books together at its end (`closes_books` False), so that balances are locked in order.
    Sources: sql/claims/fail.sql, retry.sql, hold.sql, cancel.sql; sql/calls/offer_late.sql.
    """
    with connection.transaction():
        wanted = ending.decision
        ending = replace(ending, decision=_in_view_of_calls(connection, job_id, run_token, wanted))
        if _apply(connection, job_id, run_token, ending):
            if isinstance(ending.decision, Fail) and closes_books:
                ledger.close(connection, [job_id])
            if ending.decision is wanted:
                return Settled.DONE
            return Settled.HELD if isinstance(ending.decision, Hold) else Settled.REQUEUED
        counted = _counted(ending.decision)
        return _refused(
            connection,
            job_id,
            run_token,
            outcome=ending.outcome,
            counted=counted,
            error=ending.error,
            closes_books=closes_books,
        )


def _in_view_of_calls(connection: Connection, job_id: UUID, run_token: UUID, decision: Decision) -> Decision:
    """What the job's earlier calls make of a decision: they may have answers, or be open still."""
    if isinstance(decision, Fail) and decision.code == "deadline_exceeded":
        return decision
    # In a statement of its own, so that the next one sees what was committed while this one waited for the lock.
    own = fetch_one(connection, "claims/lock_own", {"job_id": job_id, "run_token": run_token})
    if own is None:
        return decision
    if fetch_all(connection, "calls/offer_late", {"job_id": job_id}):
        return Retry(0.0, counted=_counted(decision))
    return unless_left_open(own["on_unknown"], decision) if own["left_open"] else decision


def _counted(decision: Decision) -> bool:
    return isinstance(decision, Hold) or decision.counted


def _apply(connection: Connection, job_id: UUID, run_token: UUID, ending: Ending) -> bool:
    common = {"job_id": job_id, "run_token": run_token, "outcome": ending.outcome, "error": _json(ending.error)}
    match ending.decision:
        case Retry() as retry:
            row = fetch_one(
                connection,
                "claims/retry",
                common
                | {
                    "counted": retry.counted,
                    "unknown": retry.unknown,
                    "unsent_death": retry.unsent_death,
                    "delay_seconds": retry.delay_seconds,
                },
            )
        case Hold(code):
            row = fetch_one(
                connection, "claims/hold", common | {"counted": True, "job_error": _job_error(code, ending.error)}
            )
        case Fail(code, counted):
            row = fetch_one(
                connection, "claims/fail", common | {"counted": counted, "job_error": _job_error(code, ending.error)}
            )
    return row is not None


def _refused(
    connection: Connection,
    job_id: UUID,
    run_token: UUID,
    *,
    outcome: str,
    counted: bool,
    error: dict[str, str] | None,
    closes_books: bool = True,
) -> Settled:
    """The fence said no: the job was cancelled, or this was settled before, or it has another owner."""
    ended = "cancelled" if outcome in ("succeeded", "released") else outcome
    row = fetch_one(
        connection,
        "claims/cancel",
        {"job_id": job_id, "run_token": run_token, "outcome": ended, "counted": counted, "error": _json(error)},
    )
    if row is not None:
        if closes_books:
            ledger.close(connection, [job_id])
        return Settled.CANCELLED
    verdict = fetch_one(connection, "claims/verdict", {"job_id": job_id, "run_token": run_token})
    if verdict is None:
        return Settled.LOST
    if verdict["outcome"] is None:
        raise Contention("the attempt is open and was not settled; the row changed between two statements")
    if (verdict["error"] or {}).get("code") == "worker_lost":
        return Settled.LOST
    if verdict["cancel_requested"]:
        return Settled.CANCELLED
    return Settled.ALREADY if verdict["outcome"] == outcome else Settled.LOST


def _job_error(code: str, error: dict[str, str] | None) -> str:
    """The job's error: the decision's code, with what the last attempt reported as the explanation."""
    cause = error or {"code": code, "class": "unknown", "message": ""}
    message = cause["message"] if cause["code"] == code else f"{cause['code']}: {cause['message']}"
    return json.dumps({"code": code, "class": cause["class"], "message": message})


def _json(value: dict[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


def allowance_from(row: Mapping[str, Any]) -> Allowance:
    """What a row says of how often its job may still be tried."""
    return Allowance(
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        attempts_counted=row["attempts_counted"],
        on_unknown=row["on_unknown"],
        unknown_retries=row["unknown_retries"],
        max_unknown_retries=row["max_unknown_retries"],
        unsent_deaths=row["unsent_deaths"],
    )


def _claim_from(row: dict[str, Any]) -> Claim:
    return Claim(
        job_id=row["id"],
        tenant_id=row["tenant_id"],
        run_token=row["run_token"],
        kind=row["kind"],
        provider=row["provider"],
        model=row["model"],
        queue=row["queue"],
        payload=row["payload"],
        trace_id=row["trace_id"],
        allowance=allowance_from(row),
        expires_in_seconds=row["expires_in_seconds"],
        waited_seconds=row["waited_seconds"],
        age_seconds=row["age_seconds"],
    )
