"""A job's events, read by those who follow it. They are written by the statements of the transitions they tell of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from aijobs.domain.jobs import JobStatus
from aijobs.store.db import Connection, Database, fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `data_json` is the JSON object of what its type adds."""

    job_id: UUID
    seq: int
    type: str
    data_json: str
    created_at: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who has read a job's events up to `after`."""

    tenant_id: UUID
    job_id: UUID
    after: int


def read_on(connection: Connection, readers: Sequence[Reader], *, limit: int) -> list[Event]:
    """What follows for each reader, at most `limit` events each, by job and number. Source: sql/events/page.sql."""
    rows = fetch_all(
        connection,
        "events/page",
        {
            "job_ids": [reader.job_id for reader in readers],
            "tenant_ids": [reader.tenant_id for reader in readers],
            "afters": [reader.after for reader in readers],
            "limit": limit,
        },
    )
    return [Event(row["job_id"], row["seq"], row["type"], row["data"], row["created_at"]) for row in rows]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job's events stand. `first` is 1 unless retention has taken some."""

    status: JobStatus
    first: int
    last: int


def place(db: Database, tenant_id: UUID, job_id: UUID) -> Place | None:
    """Where a job's events stand; None if the tenant has no such job. Source: sql/events/place.sql."""
    with db.connection() as connection:
        row = fetch_one(connection, "events/place", {"tenant_id": tenant_id, "job_id": job_id})
    if row is None:
        return None
    return Place(JobStatus(row["status"]), row["first_seq"] or 1, row["last_seq"] or 0)


@dataclass(frozen=True, slots=True)
class Version:
    """How a job stands: `version` grows with each change that its body shows."""

    version: int
    ended: bool


def versions(connection: Connection, jobs: Sequence[tuple[UUID, UUID]]) -> dict[UUID, Version]:
    """How jobs stand, given as pairs of tenant and job. Source: sql/events/versions.sql."""
    rows = fetch_all(
        connection,
        "events/versions",
        {"job_ids": [job_id for _, job_id in jobs], "tenant_ids": [tenant_id for tenant_id, _ in jobs]},
    )
    return {row["id"]: Version(row["version"], JobStatus(row["status"]).terminal) for row in rows}
