"""Bringing the database's schema to the level this code needs: forward only, one transaction each, safe to repeat."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aijobs.errors import Contention, SchemaMismatch
from aijobs.store import upkeep
from aijobs.store.db import Connection, connect, execute, fetch_all, fetch_one, run_script
from aijobs.store.queries import sql_root

# A migration waits this long for a table's lock, and everybody who wants the table waits behind it meanwhile.
LOCK_TIMEOUT = "4s"
TRIES = 30
# Rewriting a large table takes a while, and its reply comes only at the end.
REPLY_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Migration:
    """sql/migrations/NNNN_verb_noun.sql. It never changes once it has been applied somewhere."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All migrations of this code, in order."""
    found = []
    for path in sorted((sql_root() / "migrations").glob("*.sql")):
        found.append(Migration(int(path.name[:4]), path.stem, path.read_text(encoding="utf-8")))
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise AssertionError(f"migrations are not numbered 1, 2, 3 ...: {[migration.name for migration in found]}")
    return found


def required_level() -> int:
    """The number of the newest migration that this code needs."""
    return migrations()[-1].number


def migrate(dsn: str, *, say: Callable[[str], None] = lambda line: None) -> list[str]:
    """Apply what is missing and return its names. Safe to run twice, in parallel, under traffic, and killed midway.

    Raises SchemaMismatch when an applied migration was changed, and StoreUnavailable.
    """
    with connect(dsn, application_name="aijobs migrate", reply_seconds=REPLY_SECONDS) as connection:
        applied = [migration.name for migration in migrations() if _patiently(connection, migration, say)]
        _patiently_ensure_partitions(connection)
    return applied


def check_level(connection: Connection) -> None:
    """Raise SchemaMismatch, saying what to do, unless the database is at least at the level this code needs.

    A newer database is accepted: migrations keep the code of the release before working, so that deploys can roll.
    """
    needed = required_level()
    level = max((row["number"] for row in _applied(connection)), default=0)
    if level < needed:
        raise SchemaMismatch(f"the database schema is at level {level}, this code needs {needed}: run `aijobs migrate`")


def _applied(connection: Connection) -> list[dict[str, Any]]:
    found = fetch_one(connection, "schema/exists", {})
    return fetch_all(connection, "schema/applied", {}) if found is not None and found["found"] else []


def _patiently(connection: Connection, migration: Migration, say: Callable[[str], None]) -> bool:
    """Apply one migration unless it was; True if it was applied now. Tries again while its locks are not to be had."""
    for remaining in reversed(range(TRIES)):
        try:
            return _apply(connection, migration, say)
        except Contention:
            if remaining == 0:
                raise
            say(f"{migration.name}: the lock was not to be had within {LOCK_TIMEOUT}, trying again")
            time.sleep(1.0)
    raise AssertionError("unreachable")


def _apply(connection: Connection, migration: Migration, say: Callable[[str], None]) -> bool:
    with connection.transaction():
        execute(connection, "schema/set_timeouts", {"lock_timeout": "0"})
        fetch_all(connection, "schema/lock", {})
        execute(connection, "schema/create_ledger", {})
        recorded = {row["number"]: row for row in fetch_all(connection, "schema/applied", {})}.get(migration.number)
        if recorded is not None:
            if recorded["checksum"] != migration.checksum:
                raise SchemaMismatch(
                    f"migration {migration.name} was changed after it had been applied to this database"
                )
            return False
        say(f"applying {migration.name}")
        execute(connection, "schema/set_timeouts", {"lock_timeout": LOCK_TIMEOUT})
        run_script(connection, migration.text)
        execute(
            connection,
            "schema/record",
            {"number": migration.number, "name": migration.name, "checksum": migration.checksum},
        )
        return True


def _patiently_ensure_partitions(connection: Connection) -> None:
    with connection.transaction():
        execute(connection, "schema/set_timeouts", {"lock_timeout": "0"})
        fetch_all(connection, "schema/lock", {})
        upkeep.ensure_event_partitions(connection)
