"""Taking jobs from the dead: leases that ran out, and workers whose end the supervisor has seen."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping

from aijobs import metrics
from aijobs.clock import elapsed
from aijobs.config import Settings
from aijobs.domain.claims import DeadAttempt, Settled
from aijobs.domain.policy import Backoff, Fail, Retry, after_death
from aijobs.errors import AijobsError, Contention
from aijobs.store import calls, reaping, upkeep
from aijobs.store.claims import Ending
from aijobs.store.db import Connection, connect
from aijobs.store.notify import Notifier
from workers.endings import backoff_of, count_ending
from workers.spool import deliver, folder_of
from workers.strays import Strays

log = logging.getLogger(__name__)

# Partitions are made weeks ahead, so that looking once an hour is ample.
PARTITIONS_SECONDS = 3600.0
# How long the reaper's duty outlasts its interval: long enough for a slow round, short enough that a dead holder's
# successor is at work before a lease that began with it has run out.
DUTY_SLACK_SECONDS = 1.0


class Reaper(threading.Thread):
    """Reaps every `interval_seconds` while this process has the duty; sleeps, without a connection, while another has.

    After a start, and after the database was away, it first waits `grace_seconds`: the living then extend or settle
    first, and a long outage does not make every running job look dead at once.
    """

    def __init__(
        self,
        connect_: Callable[[], Connection],
        *,
        worker_id: str,
        interval_seconds: float,
        grace_seconds: float,
        backoffs: Mapping[str, Backoff],
        notifier: Notifier,
        strays: Strays,
    ) -> None:
        super().__init__(name="reaper", daemon=True)
        self._strays = strays
        self._connect = connect_
        self._connection: Connection | None = None
        self._worker_id = worker_id
        self._interval = interval_seconds
        self._grace = grace_seconds
        self._backoffs = backoffs
        self._notifier = notifier
        self._wake = threading.Event()
        self._stopping = False
        self._on_duty = False
        self._was_away = False  # the last round found no database
        self._may_reap_at = elapsed() + grace_seconds
        self._partitions_at = elapsed()

    def database_is_back(self) -> None:
        """The process has just (re)connected: be patient with everybody else who has to."""
        self._may_reap_at = elapsed() + self._grace

    def duty_is_vacant(self) -> None:
        """A claim has seen that nobody reaps."""
        if not self._on_duty:
            self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self.join(2.0)

    def run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._interval if self._on_duty else None)
            self._wake.clear()
            if elapsed() >= self._may_reap_at and not self._stopping:
                self._reap_patiently()
        self._leave()

    def run_once(self, connection: Connection) -> bool:
        """Settle all expired leases; False when another process has the duty."""
        while True:
            reaped = reaping.reap(
                connection,
                worker_id=self._worker_id,
                hold_seconds=self._interval + DUTY_SLACK_SECONDS,
                end=lambda dead: ending_of(dead, self._backoffs),
            )
            metrics.lease_expired(len(reaped.endings))
            report_endings(reaped.endings, "lease ran out", self._notifier)
            if len(reaped.endings) < reaping.REAP_LIMIT:
                return reaped.on_duty

    def _reap_patiently(self) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            if self._was_away:
                self._was_away = False
                self.database_is_back()
                return
            self._on_duty = self.run_once(self._connection)
            if self._on_duty:
                self._keep_house(self._connection)
        except AijobsError as error:
            log.warning("reaping failed, next try in %.1f s: %s", self._interval, error)
            if not isinstance(error, Contention):
                self._was_away = True
                self._disconnect()
        if not self._on_duty:
            self._disconnect()

    def _keep_house(self, connection: Connection) -> None:
        upkeep.expire(connection)
        if self._strays.providers:
            for stray in calls.take_strays(connection, self._strays.providers, limit=reaping.REAP_LIMIT):
                self._strays.put(stray)
        if elapsed() >= self._partitions_at:
            upkeep.ensure_event_partitions(connection)
            self._partitions_at = elapsed() + PARTITIONS_SECONDS

    def _leave(self) -> None:
        """Hand the duty over, so that the fleet need not wait for it to run out."""
        if self._on_duty and self._connection is not None:
            try:
                reaping.give_up_duty(self._connection, worker_id=self._worker_id)
            except AijobsError as error:
                log.warning("the reaper's duty was not handed over, it runs out by itself: %s", error)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def ending_of(dead: DeadAttempt, backoffs: Mapping[str, Backoff]) -> Ending:
    """How the attempt of a dead worker ends: nothing sent is safe to repeat, anything sent is unknown.

    A cancel needs no case of its own: it wins in the statements that apply this.
    """
    error_class = "unknown" if dead.sent else "transient"
    error = {"code": "worker_lost", "class": error_class, "message": "The worker that ran this attempt was lost."}
    outcome = "unknown" if dead.sent else "failed"
    if dead.expired:
        return Ending(outcome, Fail("deadline_exceeded", counted=dead.sent), error)
    backoff = backoffs.get(dead.kind, Backoff())
    decision = after_death(
        dead.allowance,
        sent=dead.sent,
        askable=dead.askable,
        deduplicated=dead.deduplicated,
        backoff=backoff,
        jitter=random.random(),
    )
    return Ending(outcome, decision, error)


def end_stuck(connection: Connection, worker_id: str, backoffs: Mapping[str, Backoff], notifier: Notifier) -> None:
    """Settle what a leaving process still holds: handlers that did not stop when told to.

    Handed back where nothing was sent, for that is nobody's fault; by the unknown policy where something was.
    """

    def end(dead: DeadAttempt) -> Ending:
        if dead.sent or dead.expired:
            return ending_of(dead, backoffs)
        return Ending("released", Retry(0.0, counted=False), None)

    while endings := reaping.release_dead(connection, worker_id=worker_id, end=end):
        report_endings(endings, "did not stop in time", notifier)


def report_endings(endings: list[tuple[DeadAttempt, Ending, Settled]], why: str, notifier: Notifier | None) -> None:
    """Count and log settled dead attempts, and wake the workers for those that are to run again."""
    for dead, ending, settled in endings:
        count_ending(ending.decision, settled)
        if ending.outcome == "unknown":
            metrics.provider_unknown_outcome()
        log.warning(
            "attempt of a lost worker closed as %s (%s): %s",
            ending.outcome,
            why,
            type(ending.decision).__name__.lower(),
            extra={"job_id": str(dead.job_id), "attempt": dead.attempt},
        )
        if notifier is not None:
            notifier.notify(dead.queue)
            notifier.changed([dead.job_id])


def release_dead(settings: Settings, worker_id: str) -> None:
    """Give back the jobs of a worker process that is known to have ended. Runs in a short-lived process of its own.

    Tries until the database has answered or the leases have run out by themselves, which the reaper then sees.
    """
    metrics.configure(settings.statsd, settings.statsd_prefix)
    backoffs = backoffs_of(settings)
    give_up_at = elapsed() + settings.lease_seconds
    dsn = settings.require_database_url()
    while elapsed() < give_up_at:
        try:
            _release_all(settings, dsn, worker_id, backoffs)
        except AijobsError as error:
            log.warning("the jobs of %s wait for the database: %s", worker_id, error)
            time.sleep(0.25)
        else:
            metrics.flush()
            return


def backoffs_of(settings: Settings) -> dict[str, Backoff]:
    """How each configured kind spaces its repeats."""
    return {name: backoff_of(kind) for name, kind in settings.kinds.items()}


def _release_all(settings: Settings, dsn: str, worker_id: str, backoffs: Mapping[str, Backoff]) -> None:
    notifier = Notifier(dsn, application_name="aijobs release")
    with connect(dsn, application_name=f"aijobs release {os.getpid()}") as connection:
        reaping.give_up_duty(connection, worker_id=worker_id)
        # Before its jobs are given back: what it has paid for is then accepted, and not bought again.
        try:
            for queue in deliver(folder_of(settings.data_dir), connection):
                notifier.notify(queue)
        except OSError as error:
            log.error("what it has left on disk cannot be delivered: %s", error)
        while endings := reaping.release_dead(
            connection, worker_id=worker_id, end=lambda dead: ending_of(dead, backoffs)
        ):
            report_endings(endings, "worker ended", notifier)
    notifier.close()
