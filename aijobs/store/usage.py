"""What jobs of a period came to, counted from the rows themselves, so that no sum can drift from them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aijobs.store.db import Database, fetch_all

GROUPS = ("day", "kind", "provider", "model", "user")


@dataclass(frozen=True, slots=True)
class Period:
    """From a moment on, up to another (left out). Both are aware."""

    start: datetime
    end: datetime


def summary(db: Database, period: Period, *, group_by: str | None, tenant_id: UUID | None) -> list[dict[str, Any]]:
    """Sums over the jobs created in the period, by group; over all tenants if none is named.

    `cost_per_accepted_micros` and `first_try_share` are None where nothing was accepted. Source: sql/usage/summary.sql.
    """
    parameters = {
        "tenant_id": tenant_id,
        "from_id": _first_id(period.start),
        "until_id": _first_id(period.end),
        "group_by": group_by or "all",
    }
    with db.connection() as connection:
        return [_with_shares(row) for row in fetch_all(connection, "usage/summary", parameters)]


def fleet(db: Database) -> list[dict[str, Any]]:
    """What waits, runs and is held now, by queue. Source: sql/usage/fleet.sql."""
    with db.connection() as connection:
        return fetch_all(connection, "usage/fleet", {})


def _with_shares(row: dict[str, Any]) -> dict[str, Any]:
    accepted = row["accepted"]
    return row | {
        "margin_micros": row["charged_micros"] - row["cost_known_micros"],
        "cost_per_accepted_micros": -(-row["cost_known_micros"] // accepted) if accepted else None,
        "first_try_share": round(row["first_try"] / accepted, 4) if accepted else None,
    }


def _first_id(moment: datetime) -> UUID:
    """The least id that a job created at the moment may have."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)
