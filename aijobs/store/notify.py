"""Hints between processes. A hint says "look"; it may be lost, and whoever waits for one looks by itself, too."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from uuid import UUID

from aijobs.errors import AijobsError
from aijobs.store.db import Connection, connect, execute, fetch_all, fetch_one, take_notifications

log = logging.getLogger(__name__)

# Hints that follow each other within this time go out as one statement. The first goes at once.
COALESCE_SECONDS = 0.005
# After a failed connection the next is tried no sooner than this; hints of the meantime are dropped, for polls find the
# jobs.
RECONNECT_SECONDS = 1.0
# A payload has room for 8,000 bytes.
IDS_IN_A_PAYLOAD = 200


class Channel(StrEnum):
    """What hints speak of."""

    JOBS = "aijobs_jobs"  # a queue may have work
    CANCELS = "aijobs_cancels"  # running jobs are to be cancelled
    EVENTS = "aijobs_events"  # jobs have changed
    OUTPUT = "aijobs_output"  # jobs have said more


def listen_for_jobs(connection: Connection) -> bool:
    """Subscribe a worker's connection; False if hints will not arrive, as behind a pooler.

    Sources: sql/notify/listen_jobs.sql, listen_cancels.sql, listening.sql.
    """
    execute(connection, "notify/listen_jobs", {})
    execute(connection, "notify/listen_cancels", {})
    return _listens(connection, Channel.JOBS)


def listen_for_events(connection: Connection) -> bool:
    """Subscribe the connection of those who follow jobs; False as above.

    Sources: sql/notify/listen_events.sql, listen_output.sql, listening.sql.
    """
    execute(connection, "notify/listen_events", {})
    execute(connection, "notify/listen_output", {})
    return _listens(connection, Channel.EVENTS)


def hints_in(connection: Connection) -> Iterator[tuple[Channel, str]]:
    """The hints that have arrived, without waiting. Raises StoreUnavailable."""
    for channel, payload in take_notifications(connection):
        yield Channel(channel), payload


def ids_in(payload: str) -> Iterator[UUID]:
    """The jobs that a hint names; nothing for a payload that is not ours."""
    for text in payload.split(","):
        try:
            yield UUID(text)
        except ValueError:
            log.warning("a hint that names no job was ignored")


class Notifier:
    """Sends hints from one thread of its own, so that no request or worker waits for a NOTIFY.

    NOTIFY takes a lock of the whole database at its commit: sent inside each creating transaction it would make all
    tenants wait for each other, so it is sent after the commit, on a connection of its own, and coalesced.
    The thread starts at the first hint in the process that gives it, so that a fork finds nothing to inherit.
    No method blocks on the network or raises.
    """

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self._application_name = application_name
        self._pid = 0
        self._starting = threading.Lock()
        self._changed = threading.Condition()
        self._hints: set[tuple[Channel, str]] = set()
        self._closing = False

    def notify(self, queue: str) -> None:
        """Hint that `queue` may have work."""
        self._put(Channel.JOBS, [queue])

    def cancel(self, job_id: UUID) -> None:
        """Hint that a running job is to be cancelled."""
        self._put(Channel.CANCELS, [job_id.hex])

    def changed(self, job_ids: Iterable[UUID]) -> None:
        """Hint that jobs have events of any kind but output."""
        self._put(Channel.EVENTS, [job_id.hex for job_id in job_ids])

    def said(self, job_ids: Iterable[UUID]) -> None:
        """Hint that jobs have output."""
        self._put(Channel.OUTPUT, [job_id.hex for job_id in job_ids])

    def close(self) -> None:
        """Send what is left and stop. Waits a second at most."""
        if self._pid == os.getpid():
            with self._changed:
                self._closing = True
                self._changed.notify()
            self._thread.join(timeout=1.0)

    def _put(self, channel: Channel, words: list[str]) -> None:
        if not words:
            return
        with self._starting:
            if self._pid != os.getpid():
                self._start()
        with self._changed:
            self._hints.update((channel, word) for word in words)
            self._changed.notify()

    def _start(self) -> None:
        self._changed = threading.Condition()
        self._hints = set()
        self._closing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection: Connection | None = None
        retry_at = 0.0
        while (hints := self._take()) is not None:
            try:
                if connection is None:
                    if time.monotonic() < retry_at:
                        continue
                    connection = connect(self._dsn, application_name=self._application_name)
                    execute(connection, "notify/commit_without_flush", {})
                channels, payloads = zip(*_packed(hints), strict=True)
                fetch_all(connection, "notify/send", {"channels": list(channels), "payloads": list(payloads)})
            except AijobsError as error:
                log.warning("hints are not sent, those who wait for them look by themselves: %s", error)
                _close(connection)
                connection = None
                retry_at = time.monotonic() + RECONNECT_SECONDS
            time.sleep(COALESCE_SECONDS)
        _close(connection)

    def _take(self) -> set[tuple[Channel, str]] | None:
        """The hints to send, waiting for the first; None when it is time to stop."""
        with self._changed:
            while not self._hints:
                if self._closing:
                    return None
                self._changed.wait()
            hints, self._hints = self._hints, set()
            return hints


def _packed(hints: set[tuple[Channel, str]]) -> Iterator[tuple[str, str]]:
    """Channels and payloads: a queue's name alone, ids of jobs together."""
    for channel in Channel:
        words = sorted(word for of, word in hints if of is channel)
        size = 1 if channel is Channel.JOBS else IDS_IN_A_PAYLOAD
        for start in range(0, len(words), size):
            yield channel.value, ",".join(words[start : start + size])


def _listens(connection: Connection, channel: Channel) -> bool:
    row = fetch_one(connection, "notify/listening", {"channel": channel})
    return row is not None and bool(row["listening"])


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
