"""Looking for work: when to, and what a look finds.

LISTEN comes first, then a look, then the wait, and the wake-up is taken note of before the look and never after it, so
that no hint can fall between. A hint says only "look"; the poll finds what hints miss, and is at the same time the
check that the connection still answers.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from aijobs.clock import elapsed
from aijobs.config import Settings
from aijobs.domain.claims import Claim
from aijobs.errors import AijobsError, Contention, StoreUnavailable
from aijobs.store import claims
from aijobs.store.db import Connection
from aijobs.store.notify import Channel, Notifier, ids_in
from workers.claim_connection import ClaimConnection
from workers.gates import Gates
from workers.spool import deliver, folder_of

log = logging.getLogger(__name__)

# A process whose hinted claims find nothing answers hints later, up to this, so that one hint does not make the whole
# fleet look each time. The first that finds work answers at once again.
HINT_DELAY_SECONDS = 0.1
PROMOTE_AGAIN_SECONDS = 0.25
# While there is a backlog, a claim waits this long for more slots than one to be free: a commit for one job costs as
# much as a commit for fifty, and no call to a provider is short enough to notice.
GATHER_SECONDS = 0.004
# How soon a claim is followed by one that tries a shut gate; often enough where no job waits behind it.
PROBE_SECONDS = 0.5
# How often a process looks for what others have left on disk.
DELIVER_SECONDS = 10.0


class Claimer:
    """Used by a worker's main thread; only `look_in` may be called from others.

    `start` is given each claim with the local time at which it was asked for; `cancel` the jobs that a hint says are to
    be cancelled, ours or not. `reaper_vacant` and `courier_vacant` are called when a claim has seen that nobody
    has that duty.
    """

    def __init__(
        self,
        settings: Settings,
        connection: ClaimConnection,
        *,
        worker_id: str,
        queues: list[str] | None,
        kinds: Collection[str],
        gates: Gates,
        notifier: Notifier,
        start: Callable[[Claim, float], None],
        cancel: Callable[[Collection[UUID]], None],
        reaper_vacant: Callable[[], None],
        courier_vacant: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._queues = queues
        self._gates = gates
        self._notifier = notifier
        self._start = start
        self._cancel = cancel
        self._reaper_vacant = reaper_vacant
        self._courier_vacant = courier_vacant
        self._wanted: dict[str, Any] = {
            "worker_id": worker_id,
            "lease_seconds": settings.lease_seconds,
            "queues": queues,
            "kinds": list(kinds),
            "keys": gates.keys,
        }
        self._planning = threading.Lock()
        self._look_at = 0.0  # by the local clock
        self._hinted = False
        self._backlog = False  # the last claim filled all free slots
        self._hint_delay = 0.0
        self._deliver_at = 0.0
        self._probe_due: str | None = None  # a provider whose shut gate may be tried

    @property
    def due_in(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._look_at - elapsed())

    def look_in(self, seconds: float) -> None:
        """Look for work in so many seconds at the latest."""
        with self._planning:
            self._look_at = min(self._look_at, elapsed() + seconds)

    def look(self, free: Callable[[], int], slots: int) -> None:
        """Look for work now if it is time to. `free` says how many of the slots are; at least one is."""
        if elapsed() < self._look_at:
            return
        if self._backlog and free() <= slots // 2:
            self._backlog = False
            time.sleep(GATHER_SECONDS)
        with self._planning:
            self._look_at = math.inf
        hinted, self._hinted = self._hinted, False
        try:
            self._claim(free(), hinted)
        except AijobsError as error:
            self.look_in(self._connection.failed(error))

    def hear(self) -> None:
        """Take the hints that have come."""
        try:
            hints = self._connection.hints()
        except StoreUnavailable as error:
            self.look_in(self._connection.failed(error))
            return
        queues = {payload for channel, payload in hints if channel is Channel.JOBS}
        to_cancel = {job_id for channel, payload in hints if channel is Channel.CANCELS for job_id in ids_in(payload)}
        if to_cancel:
            self._cancel(to_cancel)
        if any(self._queues is None or queue in self._queues for queue in queues):
            self._hinted = True
            self.look_in(self._hint_delay * random.uniform(0.5, 1.0))

    def database_is_back(self) -> None:
        """What dead processes have left on disk is worth a look at once."""
        self._deliver_at = 0.0

    def _claim(self, free: int, hinted: bool) -> None:
        connection = self._connection.opened()
        self._deliver(connection)
        if self._probe_due is not None:
            # Before all else: a fleet that is busy with other jobs would never have a slot left for it.
            free -= self._probe(connection, self._probe_due)
            self._probe_due = None
        claimed_at = elapsed()
        found = claims.claim(connection, **self._wanted, slots=free)
        self._gates.troubled = found.troubled
        self._begin(found.claims, claimed_at)
        self._probe_due = found.probe_due
        if self._probe_due is not None:
            self.look_in(PROBE_SECONDS)
        self._connection.worked()
        if found.reaper_vacant:
            self._reaper_vacant()
        if found.courier_vacant:
            self._courier_vacant()
        self._plan(found, free, hinted)
        if found.next_due_seconds is not None and found.next_due_seconds <= 0:
            # None promoted: another worker is doing it, or somebody holds the row. Looking again at once would spin.
            self.look_in(0.0 if claims.promote(connection) else PROMOTE_AGAIN_SECONDS)

    def _probe(self, connection: Connection, provider: str) -> int:
        """Try a shut gate with a job, if that is due and there is one; how many slots it takes."""
        claimed_at = elapsed()
        found = claims.claim_probe(connection, provider=provider, **self._wanted)
        if found:
            log.warning("trying the shut gate of provider %s with a job", provider)
        self._begin(found, claimed_at)
        return len(found)

    def _begin(self, found: Collection[Claim], claimed_at: float) -> None:
        for claim in found:
            self._start(claim, claimed_at)
        self._notifier.changed([claim.job_id for claim in found])

    def _plan(self, found: claims.ClaimRound, free: int, hinted: bool) -> None:
        """When to look next: at once while there is more, when a delayed job is due, or at the poll.

        The poll is jittered, so that a fleet does not move in step; upwards, so that it is never more often than asked.
        """
        self.look_in(self._settings.poll_seconds * random.uniform(1.0, 1.05))
        if found.next_due_seconds is not None and found.next_due_seconds > 0:
            self.look_in(found.next_due_seconds)
        self._backlog = len(found.claims) == free
        if self._backlog:
            self.look_in(0.0)
        if found.claims:
            self._hint_delay = 0.0
        elif hinted:
            self._hint_delay = min(max(2 * self._hint_delay, 0.005), HINT_DELAY_SECONDS)

    def _deliver(self, connection: Connection) -> None:
        """Now and then, and first of all when the database is back: deliver what dead processes have left on disk."""
        if elapsed() < self._deliver_at:
            return
        self._deliver_at = elapsed() + DELIVER_SECONDS
        try:
            for queue in deliver(folder_of(self._settings.data_dir), connection):
                self._notifier.notify(queue)
        except (OSError, Contention) as error:
            log.error("what others have left on disk cannot be delivered now: %s", error)
