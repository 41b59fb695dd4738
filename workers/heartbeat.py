"""Keeping leases alive, and noticing what is lost: one thread, one connection, one UPDATE for the whole process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from aijobs import metrics
from aijobs.clock import elapsed
from aijobs.errors import AijobsError
from aijobs.store import claims
from aijobs.store.db import Connection
from workers.held import HeldClaim, Holdings

log = logging.getLogger(__name__)


class Heartbeat(threading.Thread):
    """Extends all leases of the process every `interval_seconds`, until stopped.

    It has a connection and a thread of its own, open before they are needed, so that nothing a job does can keep it
    from beating. A beat that fails, or that skips a row somebody else has locked, is repeated within a tenth of the
    interval.
    A lease that could not be confirmed in time ends its own attempt before another worker can own the job.
    """

    def __init__(
        self,
        holdings: Holdings,
        connect: Callable[[], Connection],
        *,
        interval_seconds: float,
        lease_seconds: float,
        overtime_seconds: float,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._holdings = holdings
        self._connect = connect
        self._connection: Connection | None = None
        self._interval = interval_seconds
        self._lease_seconds = lease_seconds
        self._overtime = overtime_seconds
        self._wake = threading.Event()
        self._stopping = False

    def beat(self) -> None:
        """Beat now: there may be a cancel to learn of."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self.join(2.0)

    def run(self) -> None:
        while not self._stopping:
            complete = self.run_once()
            self._give_up_unsafe()
            self._wake.wait(self._interval if complete else self._interval / 10)
            self._wake.clear()
        if self._connection is not None:
            self._connection.close()

    def run_once(self) -> bool:
        """One beat. False if it must be repeated soon: the database did not answer, or a row was locked."""
        due = [held for held in self._holdings.all() if self._may_extend(held)]
        try:
            if self._connection is None:
                self._connection = self._connect()
            if not due:
                return True
            sent_at = elapsed()
            extension = claims.extend(
                self._connection,
                [(held.claim.job_id, held.claim.run_token) for held in due],
                lease_seconds=self._lease_seconds,
            )
        except AijobsError as error:
            log.warning("heartbeat failed, next try in %.2f s: %s", self._interval / 10, error)
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return False
        return self._learn(due, extension, sent_at)

    def _may_extend(self, held: HeldClaim) -> bool:
        """A handler that overran its deadline is not kept alive for ever: its lease then runs out for the reaper."""
        return held.settling or elapsed() < held.deadline_at + self._overtime

    def _learn(self, due: list[HeldClaim], extension: claims.Extension, sent_at: float) -> bool:
        unconfirmed = False
        for held in due:
            job_id = held.claim.job_id
            if job_id in extension.confirmed:
                held.confirm(sent_at)
                if job_id in extension.cancel_requested:
                    held.abort("cancelled")
            elif job_id in extension.lost:
                self._lose(held)
            else:
                unconfirmed = True
        return not unconfirmed

    def _give_up_unsafe(self) -> None:
        for held in self._holdings.all():
            if not held.lease_is_safe():
                self._lose(held)

    def _lose(self, held: HeldClaim) -> None:
        # A claim that is being settled looks lost once its commit has happened; the settlement itself will say.
        if held.settling or held.reason == "lease_lost":
            return
        log.warning("lease lost", extra={"job_id": str(held.claim.job_id), "attempt": held.claim.allowance.attempts})
        metrics.leases_lost(1)
        held.abort("lease_lost")
