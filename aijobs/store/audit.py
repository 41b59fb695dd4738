"""Every promise about the tables as a query that returns the rows that break it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aijobs.store.db import Connection, fetch_all
from aijobs.store.queries import names_in


def invariants() -> list[str]:
    """The names of all invariants, which are those of the files in sql/invariants/."""
    return names_in("invariants")


def broken(connection: Connection, most_rows: int = 100) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each invariant with the rows that break it, up to `most_rows`; it reads, and locks nothing.

    Each is one statement and sees one moment, so that a busy database is no reason for a false alarm.
    """
    for name in invariants():
        yield name, fetch_all(connection, f"invariants/{name}", {"most_rows": most_rows})
