"""What a running attempt says on its way: how far it has come, and pieces of its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from aijobs.store.db import Connection, fetch_all


@dataclass(frozen=True, slots=True)
class Said:
    """Something an attempt says: JSON text as progress, plain text as output."""

    job_id: UUID
    run_token: UUID
    text: str


def progress(connection: Connection, said: Sequence[Said]) -> frozenset[UUID]:
    """Record progress, one value for a job; the jobs that are still ours. Source: sql/attempts/progress.sql."""
    return _say(connection, "attempts/progress", said)


def emit(connection: Connection, said: Sequence[Said]) -> frozenset[UUID]:
    """Append output, one piece for a job; the jobs that are still ours. Source: sql/attempts/emit.sql."""
    return _say(connection, "attempts/emit", said)


def _say(connection: Connection, statement: str, said: Sequence[Said]) -> frozenset[UUID]:
    parameters = {
        "job_ids": [one.job_id for one in said],
        "run_tokens": [one.run_token for one in said],
        "values": [one.text for one in said],
    }
    return frozenset(row["id"] for row in fetch_all(connection, statement, parameters))
