"""The database as a command uses it: one connection, for as long as the command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aijobs.config import Settings
from aijobs.store.db import Database, connect
from aijobs.store.migrate import check_level


@contextmanager
def database() -> Iterator[Database]:
    """The configured database at this release's level. Raises ConfigError, SchemaMismatch, StoreUnavailable."""
    dsn = Settings.from_env().require_database_url()
    # Not from the pool: that would try for seconds, and log each try, before it said that the database is away.
    with connect(dsn, application_name="aijobs cli") as connection:
        check_level(connection)
    db = Database(dsn, application_name="aijobs cli", max_size=1)
    try:
        yield db
    finally:
        db.close()
