"""Connections: bounded waits for every reply, one pool per process, driver errors in our own words."""

from __future__ import annotations

import os
import select
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from aijobs.errors import ConfigError, Contention, InsufficientBudget, StoreUnavailable, UnstorableValue
from aijobs.store.queries import query

T = TypeVar("T")

# A network that goes silent raises no error by itself: with libpq's defaults a dead connection looks like a quiet
# queue for two hours. With these, each side notices within about ten seconds.
_LINK_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8000,
    "target_session_attrs": "read-write",
}
# How long a statement waits for a lock that somebody else holds.
LOCK_SECONDS = 3.0
# On the server's side: no statement waits for a lock longer than a caller would wait for the answer, and a client that
# vanished inside a transaction gives its row locks back.
_SESSION_DEFAULTS = (
    "-c lock_timeout={lock_ms}ms -c idle_in_transaction_session_timeout=10s"
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=8s"
)
# Each statement has an index made for it. A plan that was made, and kept, while a table was nearly empty would read all
# of it for each job when it is full.
_SHORT_WORK = " -c statement_timeout=20s -c enable_seqscan=off"
_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CONTENTION = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)
# After a failover a pooled connection may still lead to the demoted server, which refuses each write.
_WRONG_SERVER = (errors.ReadOnlySqlTransaction,)


class _TimestampLoader(Loader):
    """timestamptz as an RFC 3339 string in UTC.

    Read from the binary form, so that no TimeZone or DateStyle of a session or role can change it, and so that a
    value no Python datetime can hold ('infinity') is one odd string and not an error that breaks every page with it.
    """

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> str:
        (microseconds,) = struct.unpack("!q", data)
        try:
            moment = _POSTGRES_EPOCH + microseconds * _MICROSECOND
        except OverflowError:
            return "infinity" if microseconds > 0 else "-infinity"
        return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


class Connection(psycopg.Connection[DictRow]):
    """A connection that does not wait for a reply for ever.

    TCP alone cannot tell a stopped server from a slow one: its kernel goes on acknowledging. When a reply is overdue
    the socket is closed, never the statement cancelled, because a cancelled COMMIT may have happened all the same.
    """

    reply_seconds: float = 30.0
    unreplicated: bool = False

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.reply_seconds)
        except errors._WaitTimeout:
            self.close()
            raise psycopg.OperationalError(f"the database did not answer within {self.reply_seconds:g} s") from None


def with_defaults(
    dsn: str, application_name: str, *, lock_seconds: float = LOCK_SECONDS, reads_tables: bool = False
) -> str:
    """The DSN with our link and session settings where the user's own says nothing. ConfigError if it is none."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        # Not with the driver's words: they quote the text, and a password may be in it.
        sentence = (
            "AIJOBS_DATABASE_URL or AIJOBS_LISTEN_URL is not a PostgreSQL DSN, like postgresql://user@host/database."
        )
        raise ConfigError([sentence]) from None
    options = _SESSION_DEFAULTS.format(lock_ms=round(lock_seconds * 1000)) + ("" if reads_tables else _SHORT_WORK)
    session = {} if given.get("options") else {"options": options}
    return make_conninfo("", **{**_LINK_DEFAULTS, **session, "application_name": application_name, **given})


def connect(
    dsn: str,
    *,
    application_name: str,
    reply_seconds: float = 30.0,
    lock_seconds: float = LOCK_SECONDS,
    reads_tables: bool = False,
) -> Connection:
    """A new autocommit connection of our own kind. Raises StoreUnavailable.

    A reply may take `reply_seconds`, and a lock be waited for `lock_seconds`. `reads_tables`: for statements that read
    whole tables, and may take their time.
    """
    with translated():
        settled = with_defaults(dsn, application_name, lock_seconds=lock_seconds, reads_tables=reads_tables)
        connection = Connection.connect(settled, autocommit=True, row_factory=dict_row)
        _configure(connection, reply_seconds)
        return connection


def _configure(connection: Connection, reply_seconds: float = 30.0) -> None:
    connection.adapters.register_loader("timestamptz", _TimestampLoader)
    connection.reply_seconds = reply_seconds

    def on_notice(notice: psycopg.errors.Diagnostic) -> None:
        # A commit whose wait for the synchronous standby was cancelled is answered as success, with only this warning.
        if notice.sqlstate == "01000" and "synchronous replication" in (notice.message_primary or ""):
            connection.unreplicated = True

    connection.add_notice_handler(on_notice)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into StoreUnavailable, Contention, UnstorableValue and InsufficientBudget.

    Programming errors go through.

    Connection errors carry no SQLSTATE, so that they are told by their type.
    """
    try:
        yield
    except _CONTENTION as error:
        raise Contention(type(error).__name__) from error
    except psycopg.errors.CheckViolation as error:
        if error.diag.constraint_name != "budget_is_kept":
            raise
        raise InsufficientBudget("the tenant's budget does not cover the reservation") from None
    except psycopg.DataError as error:
        raise UnstorableValue(type(error).__name__) from error
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed, *_WRONG_SERVER) as error:
        raise StoreUnavailable(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def fetch_all(
    connection: Connection, name: str, parameters: Mapping[str, object], *, keep_plan: bool = True
) -> list[DictRow]:
    """Run sql/<name>.sql and return its rows. Raises StoreUnavailable or Contention."""
    return _run(connection, name, parameters, keep_plan).fetchall()


def fetch_one(
    connection: Connection, name: str, parameters: Mapping[str, object], *, keep_plan: bool = True
) -> DictRow | None:
    """Run sql/<name>.sql, which returns at most one row."""
    rows = fetch_all(connection, name, parameters, keep_plan=keep_plan)
    if len(rows) > 1:
        raise AssertionError(f"sql/{name}.sql returned {len(rows)} rows where at most one is right")
    return rows[0] if rows else None


def execute(connection: Connection, name: str, parameters: Mapping[str, object]) -> int:
    """Run sql/<name>.sql and return how many rows it touched. Raises StoreUnavailable or Contention."""
    return _run(connection, name, parameters).rowcount


def _run(
    connection: Connection, name: str, parameters: Mapping[str, object], keep_plan: bool = True
) -> psycopg.Cursor[DictRow]:
    statement = query(name)
    statement.check(parameters)
    with translated():
        try:
            # Without parameters the text goes as it is, so that no percent sign is read as a placeholder.
            prepare = None if keep_plan else False
            cursor = connection.execute(statement.text, parameters or None, prepare=prepare, binary=True)
        except _WRONG_SERVER:
            connection.close()
            raise
    if connection.unreplicated:
        connection.close()
        raise StoreUnavailable("the commit was not confirmed by the synchronous standby")
    return cursor


def run_script(connection: Connection, text: str) -> None:
    """Run a migration's statements, several at once. Raises StoreUnavailable or Contention."""
    with translated():
        connection.execute(text.encode())


def take_notifications(connection: Connection) -> list[tuple[str, str]]:
    """Channel and payload of the notifications that have arrived, without waiting. Raises StoreUnavailable."""
    with translated():
        return [(notification.channel, notification.payload) for notification in connection.notifies(timeout=0)]


class Database:
    """The connections of one process, opened at first use and never shared across a fork."""

    def __init__(self, dsn: str, *, application_name: str, max_size: int = 4, wait_seconds: float = 5.0) -> None:
        self._dsn = with_defaults(dsn, application_name)
        self._max_size = max_size
        self._wait_seconds = wait_seconds
        self._pool: ConnectionPool[Connection] | None = None
        self._pid = 0
        self._opening = threading.Lock()
        self._away = False  # the last caller got no connection in time
        self._asking = threading.Lock()
        # Pools of the parent process. They are kept so that no destructor closes sockets that the parent still uses.
        self._inherited: list[ConnectionPool[Connection]] = []

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """An autocommit connection for one piece of work. Raises StoreUnavailable when none can be had in time."""
        with translated():
            pool = self._own_pool()
            connection = self._patiently_once(pool)
            try:
                yield connection
            finally:
                pool.putconn(connection)

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()

    def _patiently_once(self, pool: ConnectionPool[Connection]) -> Connection:
        """A connection; while the database is known to be away, one caller at a time waits for it and the rest fail.

        Else each request of an outage would hold its thread for the whole wait, until none was left to say so.
        """
        if not self._away:
            return self._noting_absence(pool)
        if not self._asking.acquire(blocking=False):
            raise StoreUnavailable("the database did not answer a moment ago")
        try:
            return self._noting_absence(pool)
        finally:
            self._asking.release()

    def _noting_absence(self, pool: ConnectionPool[Connection]) -> Connection:
        try:
            connection = self._live_connection(pool)
        except PoolTimeout:
            self._away = True
            raise
        self._away = False
        return connection

    def _live_connection(self, pool: ConnectionPool[Connection]) -> Connection:
        """A connection that the server has not ended meanwhile.

        An idle connection has nothing to read, unless it is the news of its end. Looking costs no round trip, and
        spares the first requests after a restart of the database one error for each connection that was open before it.
        """
        for _ in range(self._max_size):
            connection = pool.getconn()
            waiting = select.poll()
            waiting.register(connection.fileno(), select.POLLIN)
            if not waiting.poll(0):
                return connection
            connection.close()
            pool.putconn(connection)
        return pool.getconn()

    def _own_pool(self) -> ConnectionPool[Connection]:
        with self._opening:
            if self._pool is not None and self._pid != os.getpid():
                self._inherited.append(self._pool)
                self._pool = None
            if self._pool is None:
                self._pool, self._pid = self._new_pool(), os.getpid()
            return self._pool

    def _new_pool(self) -> ConnectionPool[Connection]:
        return ConnectionPool(
            self._dsn,
            connection_class=Connection,
            kwargs={"autocommit": True, "row_factory": dict_row},
            configure=_configure,
            min_size=0,
            max_size=self._max_size,
            timeout=self._wait_seconds,
            # Reconnection is attempted on demand and given up soon: a long doubling delay would outlast the outage.
            reconnect_timeout=self._wait_seconds,
            open=True,
        )
