"""A real PostgreSQL for every test that asks for one: one server for the session, a fresh database for each test."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from aijobs.embedded import EmbeddedPostgres
from aijobs.store import tenants
from aijobs.store.db import Connection, Database, connect
from aijobs.store.migrate import migrate
from tests import leftovers

_TEMPLATE = "aijobs_template"
_numbers = itertools.count(1)
_LEFT_BEHIND = "left_behind"
_skips: list[str] = []
_left_behind: list[str] = []

leftovers.mark_this_session()


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The session's server, of the programs in $PGBIN if that is set. Its data goes with the session."""
    given = os.environ.get("PGBIN")
    folder = Path(tempfile.mkdtemp(prefix="aijobs-test-", dir=_fast_folder()))
    # Under root the server runs as another user, who must get through to its data.
    folder.chmod(0o711)
    try:
        with EmbeddedPostgres(folder, pgbin=Path(given) if given else None, ephemeral=True) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template(postgres: EmbeddedPostgres) -> str:
    """The name of a migrated database that is only ever copied."""
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {_TEMPLATE}")
        migrate(_dsn(postgres, _TEMPLATE))
        admin.execute(f"ALTER DATABASE {_TEMPLATE} IS_TEMPLATE true ALLOW_CONNECTIONS false")
    return _TEMPLATE


@pytest.fixture
def database_url(postgres: EmbeddedPostgres, template: str) -> Iterator[str]:
    """The DSN of a fresh, migrated database."""
    with fresh_database(postgres, template) as dsn:
        yield dsn


@pytest.fixture
def empty_database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The DSN of a fresh database without any schema."""
    with fresh_database(postgres, "template0") as dsn:
        yield dsn


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    database = Database(database_url, application_name="test", max_size=10)
    yield database
    database.close()


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, application_name="test") as opened:
        yield opened


@pytest.fixture
def tenant(db: Database) -> UUID:
    return tenants.create_tenant(db, f"tenant-{uuid.uuid4()}")


@pytest.fixture
def other_tenant(db: Database) -> UUID:
    return tenants.create_tenant(db, f"tenant-{uuid.uuid4()}")


@pytest.fixture
def api_key(db: Database, tenant: UUID) -> str:
    """A key of `tenant` with the default scopes."""
    return tenants.create_key(db, tenant)


@contextlib.contextmanager
def fresh_database(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield _dsn(server, name)
    finally:
        # A test may have stopped the server, or left it refusing connections: that is its own business to repair.
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _fast_folder() -> Path | None:
    """Memory where there is plenty of it: making a database takes 15 ms there, and 330 ms on a disk that was tried."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 1024**3:
        return memory
    return None


def _dsn(server: EmbeddedPostgres, database: str) -> str:
    return psycopg.conninfo.make_conninfo(server.dsn, dbname=database)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skips.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skips.append(report.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what one of several test processes has to complain of."""
    _left_behind.extend(getattr(node, "workeroutput", {}).get(_LEFT_BEHIND, ["a test process that did not report"]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that leaves processes behind and, where AIJOBS_CI is set, one that skipped anything."""
    _left_behind.extend(leftovers.found())
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        # One of several processes: the first of them decides for all.
        output[_LEFT_BEHIND] = _left_behind
        return
    complaints = [f"left behind: {process}" for process in _left_behind]
    if os.environ.get("AIJOBS_CI"):
        complaints += [f"skipped, which is a failure here: {test}" for test in _skips]
    if complaints:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\n" + "\n".join(complaints))
