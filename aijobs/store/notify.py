"""Hints between processes: "there may be work". A hint may be lost; the poll is the guarantee."""

from __future__ import annotations

import logging
import os
import threading
import time

from aijobs.errors import AijobsError
from aijobs.store.db import Connection, connect, execute, fetch_all, fetch_one

log = logging.getLogger(__name__)

# Hints that follow each other within this time go out as one statement. The first goes at once.
COALESCE_SECONDS = 0.005
# After a failed connection the next is tried no sooner than this; hints of the meantime are dropped, for polls find the
# jobs.
RECONNECT_SECONDS = 1.0


def listen_for_jobs(connection: Connection) -> bool:
    """Subscribe the connection to hints about new work; False if hints will not arrive, as behind a pooler.

    Sources: sql/notify/listen_jobs.sql, listening.sql.
    """
    execute(connection, "notify/listen_jobs", {})
    row = fetch_one(connection, "notify/listening", {})
    return row is not None and bool(row["listening"])


class Notifier:
    """Sends hints from one thread of its own, so that no request or worker waits for a NOTIFY.

    NOTIFY takes a lock of the whole database at its commit: sent inside each creating transaction it would make all
    tenants wait for each other, so it is sent after the commit, on a connection of its own, and coalesced.
    The thread starts at the first hint in the process that gives it, so that a fork finds nothing to inherit.
    """

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self._application_name = application_name
        self._pid = 0
        self._starting = threading.Lock()
        self._changed = threading.Condition()
        self._queues: set[str] = set()
        self._closing = False

    def notify(self, queue: str) -> None:
        """Hint that `queue` may have work. Never blocks on the network and never raises."""
        with self._starting:
            if self._pid != os.getpid():
                self._start()
        with self._changed:
            self._queues.add(queue)
            self._changed.notify()

    def close(self) -> None:
        """Send what is left and stop. Waits a second at most."""
        if self._pid == os.getpid():
            with self._changed:
                self._closing = True
                self._changed.notify()
            self._thread.join(timeout=1.0)

    def _start(self) -> None:
        self._changed = threading.Condition()
        self._queues = set()
        self._closing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection: Connection | None = None
        retry_at = 0.0
        while (queues := self._take()) is not None:
            try:
                if connection is None:
                    if time.monotonic() < retry_at:
                        continue
                    connection = connect(self._dsn, application_name=self._application_name)
                    execute(connection, "notify/commit_without_flush", {})
                fetch_all(connection, "notify/jobs", {"queues": sorted(queues)})
            except AijobsError as error:
                log.warning("hints are not sent, workers poll: %s", error)
                _close(connection)
                connection = None
                retry_at = time.monotonic() + RECONNECT_SECONDS
            time.sleep(COALESCE_SECONDS)
        _close(connection)

    def _take(self) -> set[str] | None:
        """The queues to hint at, waiting for the first; None when it is time to stop."""
        with self._changed:
            while not self._queues:
                if self._closing:
                    return None
                self._changed.wait()
            queues, self._queues = self._queues, set()
            return queues


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
