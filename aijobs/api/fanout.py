"""One listener for all who follow or wait for jobs in this process: one connection, one query a round, many readers.

A hint names jobs that have news. It may be lost, so everything is looked at once a second, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from uuid import UUID

from aijobs.clock import elapsed
from aijobs.errors import AijobsError
from aijobs.store import events
from aijobs.store.db import Connection, connect
from aijobs.store.events import Event, Reader, Version
from aijobs.store.notify import Channel, hints_in, ids_in, listen_for_events

log = logging.getLogger(__name__)

# What hints may have missed is found after this long.
POLL_SECONDS = 1.0
# Hints that follow each other within this time are one round.
COALESCE_SECONDS = 0.01
# A round takes this many events of a job; if there are more, the next round follows at once.
PAGE = 100
# What a reader has not taken yet may be this much, counted in events; a slower one reads on in the table.
MOST_UNREAD = 500
RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0)
REPLY_SECONDS = 5.0


class Watch:
    """One request that waits for a job to change."""

    def __init__(self, fanout: Fanout, tenant_id: UUID, job_id: UUID, known: int, until_ended: bool) -> None:
        self.tenant_id = tenant_id
        self.job_id = job_id
        self._fanout = fanout
        self._known = known
        self._until_ended = until_ended
        self._over = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait for the change; False if it did not come in time, or the process is to end."""
        give_up_at = elapsed() + seconds
        while not self._over.is_set() and not self._fanout.leaving and elapsed() < give_up_at:
            self._over.wait(min(1.0, give_up_at - elapsed()))
        return self._over.is_set()

    def close(self) -> None:
        self._fanout.forget(self)

    def look(self, version: Version | None) -> None:
        if version is None or version.ended or (not self._until_ended and version.version != self._known):
            self._over.set()


class Follower:
    """One stream that follows a job's events. `behind_to`: up to there it has to read in the table by itself."""

    def __init__(self, fanout: Fanout, tenant_id: UUID, job_id: UUID, after: int) -> None:
        self.tenant_id = tenant_id
        self.job_id = job_id
        self.after = after
        self.behind_to = after
        self._fanout = fanout
        self._unread: deque[Event] = deque()
        self._changed = threading.Condition()

    @property
    def behind(self) -> bool:
        return self.behind_to > self.after

    def take(self, seconds: float) -> list[Event]:
        """What has come since the last call, in order; waits so long for it at most. Nothing while it is behind."""
        with self._changed:
            self._changed.wait_for(lambda: self._unread or self.behind or self._fanout.leaving, seconds)
            if self.behind:
                return []
            taken = [event for event in self._unread if event.seq > self.after]
            self._unread.clear()
        if taken:
            self.after = taken[-1].seq
        return taken

    def put(self, found: list[Event]) -> None:
        """Called by the fanout, with what follows on what it called with before."""
        with self._changed:
            if len(self._unread) + len(found) > MOST_UNREAD:
                self._unread.clear()
                self.behind_to = found[-1].seq
            else:
                self._unread.extend(found)
            self._changed.notify()

    def close(self) -> None:
        self._fanout.forget(self)


class _Feed:
    """A job that is followed: how far its events have been handed out, and to whom."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.followers: list[Follower] = []


class Fanout:
    """Starts its thread at the first use in the process that uses it, so that a fork finds nothing to inherit."""

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self._application_name = application_name
        self._pid = 0
        self._thread = threading.Thread()
        self._changing = threading.Lock()
        self._feeds: dict[UUID, _Feed] = {}
        self._watches: dict[UUID, list[Watch]] = {}
        self._fresh: set[UUID] = set()  # to be looked at without a hint
        self.leaving = False

    def watch(self, tenant_id: UUID, job_id: UUID, *, known: int, until_ended: bool) -> Watch:
        """Wait for a job to end, or to differ from its version `known`."""
        watch = Watch(self, tenant_id, job_id, known, until_ended)
        with self._changing:
            self._start()
            self._watches.setdefault(job_id, []).append(watch)
            self._wake(job_id)
        return watch

    def follow(self, tenant_id: UUID, job_id: UUID, after: int) -> Follower:
        """Follow a job whose events have been read up to `after`."""
        follower = Follower(self, tenant_id, job_id, after)
        with self._changing:
            self._start()
            feed = self._feeds.setdefault(job_id, _Feed(Reader(tenant_id, job_id, after)))
            follower.behind_to = feed.reader.after
            feed.followers.append(follower)
            self._wake(job_id)
        return follower

    def forget(self, one: Watch | Follower) -> None:
        with self._changing:
            if isinstance(one, Watch):
                self._watches[one.job_id].remove(one)
                if not self._watches[one.job_id]:
                    del self._watches[one.job_id]
            else:
                self._feeds[one.job_id].followers.remove(one)
                if not self._feeds[one.job_id].followers:
                    del self._feeds[one.job_id]

    def leave(self) -> None:
        """Have all who wait or follow go, soon: the process is to end. Safe in a signal handler."""
        self.leaving = True

    def close(self) -> None:
        self.leave()
        if self._pid == os.getpid():
            self._wake_up()
            self._thread.join(timeout=1.0)

    def _start(self) -> None:
        if self._pid == os.getpid() and self._thread.is_alive():
            return
        if self._pid != os.getpid():
            self._feeds, self._watches, self._fresh = {}, {}, set()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="fanout", daemon=True)
        self._thread.start()

    def _wake(self, job_id: UUID) -> None:
        self._fresh.add(job_id)
        self._wake_up()

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._wake_write, b"w")

    def _run(self) -> None:
        connection: Connection | None = None
        failures = 0
        while not self.leaving:
            try:
                if connection is None:
                    connection = self._connect()
                    self._look(connection, None)
                self._round(connection)
                failures = 0
            except AijobsError as error:
                log.warning("those who follow jobs wait for the database: %s", error)
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)])
                failures += 1
        if connection is not None:
            connection.close()

    def _connect(self) -> Connection:
        connection = connect(self._dsn, application_name=self._application_name, reply_seconds=REPLY_SECONDS)
        if not listen_for_events(connection):
            log.warning("no hints arrive through this DSN, polling only: give a direct one in AIJOBS_LISTEN_URL")
        self._poll_at = elapsed() + POLL_SECONDS
        return connection

    def _round(self, connection: Connection) -> None:
        """Wait for hints, for somebody new, or for the poll; then look at what they name."""
        with self._changing:
            again = bool(self._fresh)
        if not again:
            seconds = max(0.0, self._poll_at - elapsed())
            ready, _, _ = select.select([connection.fileno(), self._wake_read], [], [], seconds)
            if self._wake_read in ready:
                os.read(self._wake_read, 65536)
            elif ready:
                time.sleep(COALESCE_SECONDS)
        changed: set[UUID] = set()
        said: set[UUID] = set()
        for channel, payload in hints_in(connection):
            (said if channel is Channel.OUTPUT else changed).update(ids_in(payload))
        if elapsed() >= self._poll_at:
            self._poll_at = elapsed() + POLL_SECONDS
            self._look(connection, None)
        else:
            self._look(connection, (changed, said))

    def _look(self, connection: Connection, hinted: tuple[set[UUID], set[UUID]] | None) -> None:
        """Look at what hints name, or at everything."""
        with self._changing:
            fresh, self._fresh = self._fresh, set()
            if hinted is None:
                watched, followed = set(self._watches), set(self._feeds)
            else:
                changed, said = hinted
                watched = (changed | fresh) & self._watches.keys()
                followed = (changed | said | fresh) & self._feeds.keys()
            watches = [(self._watches[job_id][0].tenant_id, job_id) for job_id in watched]
            readers = {job_id: self._feeds[job_id].reader for job_id in followed}
        if watches:
            self._tell_watches([job_id for _, job_id in watches], events.versions(connection, watches))
        if readers:
            self._hand_out(readers, events.read_on(connection, list(readers.values()), limit=PAGE))

    def _tell_watches(self, job_ids: Iterable[UUID], found: dict[UUID, Version]) -> None:
        with self._changing:
            for job_id in job_ids:
                for watch in self._watches.get(job_id, []):
                    watch.look(found.get(job_id))

    def _hand_out(self, readers: Mapping[UUID, Reader], found: list[Event]) -> None:
        by_job: dict[UUID, list[Event]] = {}
        for event in found:
            by_job.setdefault(event.job_id, []).append(event)
        with self._changing:
            for job_id, news in by_job.items():
                feed = self._feeds.get(job_id)
                if feed is None or feed.reader is not readers[job_id]:
                    continue  # all went meanwhile, and perhaps others came, who have read less
                feed.reader = Reader(feed.reader.tenant_id, job_id, news[-1].seq)
                for follower in feed.followers:
                    follower.put(news)
                if len(news) == PAGE:
                    self._fresh.add(job_id)
