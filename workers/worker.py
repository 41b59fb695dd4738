"""A worker process: wait for work, claim it, run it in slots, and leave in order.

The main thread owns one connection, on which it listens and claims. LISTEN comes first, then a look, then the wait, and
the wake-up is taken note of before the look and never after it, so that no hint can fall between. A hint says only
"look"; the poll finds what hints miss, and is at the same time the check that the connection still answers.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import select
import threading
import time
from collections.abc import Mapping
from typing import Any

from aijobs import metrics
from aijobs.clock import elapsed
from aijobs.config import Settings, provider_api_key
from aijobs.domain.claims import Claim
from aijobs.errors import AijobsError, ConfigError, HandlerOverran, SchemaMismatch, StoreUnavailable
from aijobs.kinds import Kind, import_handlers, load
from aijobs.providers.registry import build_adapter
from aijobs.store import claims
from aijobs.store.db import LOCK_SECONDS, Connection, connect
from aijobs.store.notify import Notifier
from workers import writer
from workers.attempt import Desk, end_attempt, run_attempt
from workers.claim_connection import ClaimConnection
from workers.emitter import Emitter
from workers.exit_codes import BAD_CONFIGURATION, BOOT_FAILED, SCHEMA_MISMATCH
from workers.gates import Gates, fingerprint
from workers.heartbeat import Heartbeat
from workers.held import HeldClaim, Holdings
from workers.overrun import Overseer
from workers.pulse import start_pulse
from workers.reaper import Reaper, backoffs_of, end_stuck
from workers.signals import ChildSignals
from workers.slots import Slots
from workers.spool import Spool, deliver, folder_of
from workers.step import Provider
from workers.supervisor import Child
from workers.writer import Writer

log = logging.getLogger(__name__)

# A process whose hinted claims find nothing answers hints later, up to this, so that one hint does not make the whole
# fleet look each time. The first that finds work answers at once again.
HINT_DELAY_SECONDS = 0.1
PROMOTE_AGAIN_SECONDS = 0.25
# After an attempt's deadline the handler has this long to notice before its lease is given up.
OVERTIME_SECONDS = 30.0
# While there is a backlog, a claim waits this long for more slots than one to be free: a commit for one job costs as
# much as a commit for fifty, and no call to a provider is short enough to notice.
GATHER_SECONDS = 0.004
# How often a process looks for what others have left on disk.
DELIVER_SECONDS = 10.0
# What is left at the drain's deadline gets this long to be settled.
SETTLE_SECONDS = 0.7


class Worker:
    """One process's worth of claiming and running. `run` loops, `run_once` looks for work once."""

    def __init__(
        self, settings: Settings, child: Child, kinds: Mapping[str, Kind], *, queues: list[str] | None = None
    ) -> None:
        self._settings = settings
        self._child = child
        self._queues = queues
        self._dsn = settings.require_database_url()
        self._kinds = {name: kind for name, kind in kinds.items() if kind.settings.isolate == child.isolated}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._signals = ChildSignals(self._wake_write)
        self._holdings = Holdings()
        self._planning = threading.Lock()
        self._look_at = 0.0  # when to look for work next, by the local clock
        self._hinted = False
        self._backlog = False  # the last claim filled all free slots
        self._hint_delay = 0.0
        self._notifier = Notifier(self._dsn, application_name=self._name("notifier"))
        self._spool = Spool(folder_of(settings.data_dir), child.worker_id)
        self._deliver_at = 0.0
        self._writer = Writer(
            lambda: self._connect("writer", lock_seconds=writer.LOCK_SECONDS),
            wake=self._notifier.notify,
            spool=self._spool,
        )
        self._emitter = Emitter(self._writer)
        self._threads = 1 if child.isolated else settings.threads
        self._slots = Slots(self._threads, run=self._run_claim, freed=self._freed)
        self._backoffs = backoffs_of(settings)
        self._reaper = Reaper(
            lambda: self._connect("reaper"),
            worker_id=child.worker_id,
            interval_seconds=settings.reap_seconds,
            grace_seconds=2 * settings.heartbeat_seconds,
            backoffs=self._backoffs,
            notifier=self._notifier,
        )
        self._claims = ClaimConnection(
            self._connect_for_claims,
            worker_id=child.worker_id,
            held=lambda: [held.claim.job_id for held in self._holdings.all()],
            notifier=self._notifier,
            on_open=self._database_is_back,
        )
        self._heartbeat = Heartbeat(
            self._holdings,
            lambda: self._connect("heartbeat"),
            interval_seconds=settings.heartbeat_seconds,
            lease_seconds=settings.lease_seconds,
            overtime_seconds=OVERTIME_SECONDS,
        )
        self._providers = self._find_providers()
        self._gates = Gates(
            {name: fingerprint(provider_api_key(settings.providers[name])) for name in self._providers}, self._writer
        )
        self._overseer = Overseer(self._holdings, self._give_up)
        self._worn = False  # a handler was given up, and its thread goes on
        self._desk = Desk(self._kinds, self._providers, self._writer, self._emitter, self._gates)

    def run(self) -> int:
        """Work until told to drain, or until the supervisor is gone. Returns the exit code."""
        self._open_spool()
        for thread in (self._writer, self._emitter, self._heartbeat, self._reaper, self._overseer):
            thread.start()
        while not self._signals.draining and not self._worn:
            self._wait(self.run_once())
        return self._drain()

    def run_once(self) -> float:
        """Look for work if it is time to and a slot is free; for how many seconds to wait then, at most."""
        free = self._slots.free if self._spool.usable else 0
        if free and elapsed() >= self._look_at:
            if self._backlog and free <= self._threads // 2:
                self._backlog = False
                time.sleep(GATHER_SECONDS)
                free = self._slots.free
            with self._planning:
                self._look_at = math.inf
            hinted, self._hinted = self._hinted, False
            try:
                self._claim(free, hinted)
            except AijobsError as error:
                self._look_in(self._claims.failed(error))
        if not self._slots.free:
            return self._settings.poll_seconds  # a freed slot ends the wait
        return max(0.0, self._look_at - elapsed())

    def _look_in(self, seconds: float) -> None:
        with self._planning:
            self._look_at = min(self._look_at, elapsed() + seconds)

    def _claim(self, free: int, hinted: bool) -> None:
        connection = self._claims.opened()
        self._deliver(connection)
        wanted: dict[str, Any] = {
            "worker_id": self._child.worker_id,
            "lease_seconds": self._settings.lease_seconds,
            "queues": self._queues,
            "kinds": list(self._kinds),
            "keys": self._gates.keys,
        }
        claimed_at = elapsed()
        found = claims.claim(connection, **wanted, slots=free)
        self._gates.troubled = found.troubled
        for claim in found.claims:
            self._start(claim, claimed_at)
        if found.probe_due is not None and len(found.claims) < free:
            claimed_at = elapsed()
            for claim in claims.claim_probe(connection, provider=found.probe_due, **wanted):
                log.warning("trying the shut gate of provider %s with a job", found.probe_due)
                self._start(claim, claimed_at)
        self._claims.worked()
        if found.reaper_vacant:
            self._reaper.duty_is_vacant()
        self._plan(found, free, hinted)
        if found.next_due_seconds is not None and found.next_due_seconds <= 0:
            # None promoted: another worker is doing it, or somebody holds the row. Looking again at once would spin.
            self._look_in(0.0 if claims.promote(connection) else PROMOTE_AGAIN_SECONDS)

    def _database_is_back(self) -> None:
        self._reaper.database_is_back()
        self._deliver_at = 0.0

    def _open_spool(self) -> None:
        try:
            self._spool.open()
        except OSError as error:
            log.warning(
                "paid answers cannot be kept on disk while the database is away (AIJOBS_DATA_DIR=%s): %s",
                self._settings.data_dir,
                error,
            )

    def _deliver(self, connection: Connection) -> None:
        """Now and then, and first of all when the database is back: deliver what dead processes have left on disk."""
        if elapsed() >= self._deliver_at:
            for queue in deliver(folder_of(self._settings.data_dir), connection):
                self._notifier.notify(queue)
            self._deliver_at = elapsed() + DELIVER_SECONDS

    def _plan(self, found: claims.ClaimRound, free: int, hinted: bool) -> None:
        """When to look next: at once while there is more, when a delayed job is due, or at the poll.

        The poll is jittered, so that a fleet does not move in step; upwards, so that it is never more often than asked.
        """
        self._look_in(self._settings.poll_seconds * random.uniform(1.0, 1.05))
        if found.next_due_seconds is not None and found.next_due_seconds > 0:
            self._look_in(found.next_due_seconds)
        self._backlog = len(found.claims) == free
        if self._backlog:
            self._look_in(0.0)
        if found.claims:
            self._hint_delay = 0.0
        elif hinted:
            self._hint_delay = min(max(2 * self._hint_delay, 0.005), HINT_DELAY_SECONDS)

    def _start(self, claim: Claim, claimed_at: float) -> None:
        kind = self._kinds[claim.kind].settings
        held = HeldClaim(
            claim,
            claimed_at=claimed_at,
            lease_seconds=self._settings.lease_seconds,
            attempt_seconds=kind.attempt_seconds or self._settings.attempt_seconds,
        )
        self._holdings.add(held)
        self._slots.start(held)

    def _run_claim(self, held: HeldClaim) -> None:
        try:
            delay = None
            # An interrupt that was meant for a handler may arrive when it has just ended.
            with contextlib.suppress(HandlerOverran):
                delay = run_attempt(held, self._desk)
        finally:
            self._holdings.remove(held)
        if delay is not None:  # our own job is back in line, or will be: nobody else need tell us
            self._look_in(delay)

    def _give_up(self, held: HeldClaim, error: HandlerOverran) -> None:
        """Settle the job of a handler that does not stop, and free its slot for as long as the process lives."""
        self._worn = True
        try:
            end_attempt(held, self._desk, None, error)
        finally:
            self._holdings.remove(held)
            self._slots.abandon(held)

    def _freed(self) -> None:
        self._wake_up()

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._wake_write, b"w")

    def _wait(self, seconds: float) -> None:
        """Wait for a hint, a freed slot, a signal or the supervisor's end. Clears the wake-up before the next look."""
        hints = self._claims.fileno()
        readers = [self._wake_read, self._child.parent_fd, *([] if hints is None else [hints])]
        ready, _, _ = select.select(readers, [], [], seconds)
        if self._wake_read in ready:
            os.read(self._wake_read, 65536)
        if self._child.parent_fd in ready and not self._signals.draining:
            log.warning("the supervisor is gone, draining")
            self._signals.draining = True
        if hints in ready:
            self._hear()

    def _hear(self) -> None:
        try:
            queues = self._claims.hints()
        except StoreUnavailable as error:
            self._look_in(self._claims.failed(error))
            return
        if any(self._queues is None or queue in self._queues for queue in queues):
            self._hinted = True
            self._look_in(self._hint_delay * random.uniform(0.5, 1.0))

    def _drain(self) -> int:
        """Let running attempts finish, then stop what is left; heartbeats go on until the last one has ended."""
        log.info("draining: %d attempts are running", len(self._holdings))
        self._await_empty(self._settings.drain_seconds, until_hurried=True)
        for held in self._holdings.all():
            held.abort("drain")
        self._await_empty(SETTLE_SECONDS, until_hurried=False)
        self._emitter.stop()
        self._writer.close(within_seconds=0.2)
        self._overseer.stop()
        self._heartbeat.stop()
        self._reaper.stop()
        if len(self._holdings):
            self._end_stuck()
        self._notifier.close()
        metrics.flush()
        self._claims.close()
        self._spool.close()
        log.info("drained")
        return 0

    def _end_stuck(self) -> None:
        try:
            end_stuck(self._claims.opened(), self._child.worker_id, self._backoffs, self._notifier)
        except AijobsError as error:
            log.warning("%d attempts are left to the reaper: %s", len(self._holdings), error)

    def _await_empty(self, seconds: float, *, until_hurried: bool) -> None:
        give_up_at = elapsed() + seconds
        while len(self._holdings) and elapsed() < give_up_at and not (until_hurried and self._signals.hurry):
            ready, _, _ = select.select([self._wake_read], [], [], min(1.0, max(0.0, give_up_at - elapsed())))
            if ready:
                os.read(self._wake_read, 65536)

    def _find_providers(self) -> dict[str, Provider]:
        names = {kind.settings.provider for kind in self._kinds.values() if kind.settings.provider is not None}
        return {
            name: Provider(self._settings.providers[name], build_adapter(self._settings, name))
            for name in sorted(names)
        }

    def _connect_for_claims(self, reply_seconds: float) -> Connection:
        """Directly, where the other connections go through a pooler that lets no hints through."""
        dsn = self._settings.listen_url or self._dsn
        return connect(dsn, application_name=self._name("claim"), reply_seconds=reply_seconds)

    def _connect(self, role: str, *, lock_seconds: float = LOCK_SECONDS) -> Connection:
        return connect(self._dsn, application_name=self._name(role), lock_seconds=lock_seconds)

    def _name(self, role: str) -> str:
        return f"aijobs {role} {self._child.worker_id}"


def _die_with_the_thread(died: threading.ExceptHookArgs) -> None:
    """End the process when one of its threads has broken.

    Without its heartbeat a process would run jobs that others take over, and without its writer it would run them for
    nothing. The supervisor gives the jobs back and starts another process.
    """
    name = died.thread.name if died.thread is not None else "unknown"
    log.critical("thread %s broke, the process ends", name, exc_info=died.exc_value)
    logging.shutdown()
    os._exit(1)


def run(settings: Settings, child: Child, *, queues: list[str] | None = None) -> int:
    """The main function of a forked worker process; returns its exit code."""
    threading.excepthook = _die_with_the_thread
    start_pulse(child.pulse_fd)
    metrics.configure(settings.statsd, settings.statsd_prefix)
    try:
        worker = Worker(settings, child, import_handlers(load(settings)), queues=queues)
    except ConfigError as error:
        log.error("%s", error)
        return BAD_CONFIGURATION
    except Exception:
        log.exception("the worker could not start")
        return BOOT_FAILED
    try:
        return worker.run()
    except SchemaMismatch as error:
        log.error("%s", error)
        return SCHEMA_MISMATCH
