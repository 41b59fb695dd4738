"""Taking jobs back: from leases that ran out, from processes that died, and from claims whose reply was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aijobs.domain.claims import DeadAttempt, Settled
from aijobs.domain.policy import Retry
from aijobs.store import ledger
from aijobs.store.claims import Ending, allowance_from, settle
from aijobs.store.db import Connection, execute, fetch_all

# How many dead attempts one transaction of the reaper settles: short enough that nobody waits for its locks.
REAP_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Reaped:
    """What the reaper did. `on_duty` is False when another process of the fleet holds the duty."""

    on_duty: bool
    endings: list[tuple[DeadAttempt, Ending, Settled]]


def reap(
    connection: Connection, *, worker_id: str, hold_seconds: float, end: Callable[[DeadAttempt], Ending]
) -> Reaped:
    """Settle up to REAP_LIMIT jobs whose lease has run out, by what `end` (a pure function) says of each.

    Source: sql/claims/lock_expired.sql.
    """
    with connection.transaction():
        rows = fetch_all(
            connection,
            "claims/lock_expired",
            {"worker_id": worker_id, "hold_seconds": hold_seconds, "limit": REAP_LIMIT},
        )
        dead = [_dead_from(row) for row in rows if row["id"] is not None]
        return Reaped(rows[0]["on_duty"], _bury(connection, dead, end))


def release_dead(
    connection: Connection, *, worker_id: str, end: Callable[[DeadAttempt], Ending]
) -> list[tuple[DeadAttempt, Ending, Settled]]:
    """Settle up to REAP_LIMIT jobs of a worker process known to be dead. Source: sql/claims/lock_abandoned.sql."""
    with connection.transaction():
        rows = fetch_all(connection, "claims/lock_abandoned", {"worker_id": worker_id, "limit": REAP_LIMIT})
        return _bury(connection, [_dead_from(row) for row in rows], end)


def release_unheld(connection: Connection, *, worker_id: str, held: Sequence[UUID]) -> list[str]:
    """Give back this process's running jobs that it does not hold: claims whose reply was lost. Returns their queues.

    Source: sql/claims/lock_unheld.sql.
    """
    ending = Ending("released", Retry(0.0, counted=False), None)
    with connection.transaction():
        rows = fetch_all(connection, "claims/lock_unheld", {"worker_id": worker_id, "job_ids": list(held)})
        for row in rows:
            settle(connection, row["id"], row["run_token"], ending)
        return [row["queue"] for row in rows]


def give_up_duty(connection: Connection, *, worker_id: str) -> None:
    """Let another process take over the duties of this one at once. Source: sql/claims/give_up_duty.sql."""
    execute(connection, "claims/give_up_duty", {"worker_id": worker_id})


def _bury(
    connection: Connection, dead: Sequence[DeadAttempt], end: Callable[[DeadAttempt], Ending]
) -> list[tuple[DeadAttempt, Ending, Settled]]:
    buried = []
    for attempt in dead:
        ending = end(attempt)
        execute(connection, "calls/abandon", {"job_id": attempt.job_id, "attempt": attempt.attempt})
        settled = settle(connection, attempt.job_id, attempt.run_token, ending, closes_books=False)
        buried.append((attempt, ending, settled))
    ledger.close(connection, [attempt.job_id for attempt in dead])
    return buried


def _dead_from(row: dict[str, Any]) -> DeadAttempt:
    return DeadAttempt(
        job_id=row["id"],
        run_token=row["run_token"],
        attempt=row["attempts"],
        kind=row["kind"],
        queue=row["queue"],
        allowance=allowance_from(row),
        sent=row["sent"],
        askable=row["askable"],
        deduplicated=row["deduplicated"],
        cancel_requested=row["cancel_requested"],
        expired=row["expired"],
    )
