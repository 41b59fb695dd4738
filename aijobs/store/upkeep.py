"""Work on the whole table that one process does for the fleet."""

from __future__ import annotations

from aijobs.store import ledger
from aijobs.store.db import Connection, execute, fetch_all


def expire(connection: Connection) -> int:
    """Fail jobs that still waited when their expires_at came; how many. Source: sql/jobs/expire.sql."""
    with connection.transaction():
        expired = [row["id"] for row in fetch_all(connection, "jobs/expire", {})]
        ledger.close(connection, expired)
    return len(expired)


def ensure_event_partitions(connection: Connection) -> None:
    """Make the coming weeks' event partitions. Source: sql/upkeep/ensure_event_partitions.sql."""
    execute(connection, "upkeep/ensure_event_partitions", {})
