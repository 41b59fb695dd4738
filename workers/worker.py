"""A worker process: wait for work, have it claimed, run it in slots, and leave in order.

The main thread looks for work (claimer.py) and waits; slots run attempts; each of the other threads does one thing and
has a connection of its own, so that none can keep another from it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Collection, Mapping
from uuid import UUID

from aijobs import metrics
from aijobs.clock import elapsed
from aijobs.config import Settings, provider_api_key
from aijobs.domain.claims import Claim
from aijobs.errors import AijobsError, ConfigError, HandlerOverran, SchemaMismatch
from aijobs.kinds import Kind, import_handlers, load
from aijobs.providers.registry import build_adapter
from aijobs.store.db import LOCK_SECONDS, Connection, connect
from aijobs.store.notify import Notifier
from workers import writer
from workers.attempt import Desk, end_attempt, run_attempt
from workers.claim_connection import ClaimConnection
from workers.claimer import Claimer
from workers.courier import Courier
from workers.emitter import Emitter
from workers.endings import backoff_of
from workers.exit_codes import BAD_CONFIGURATION, BOOT_FAILED, SCHEMA_MISMATCH
from workers.gates import Gates, fingerprint
from workers.heartbeat import Heartbeat
from workers.held import HeldClaim, Holdings
from workers.overrun import Overseer
from workers.pulse import start_pulse
from workers.reaper import Reaper, end_stuck
from workers.signals import ChildSignals
from workers.slots import Slots
from workers.spool import Spool, deliver, folder_of
from workers.step import Provider
from workers.strays import Strays
from workers.supervisor import Child
from workers.writer import Writer

log = logging.getLogger(__name__)

# After an attempt's deadline the handler has this long to notice before its lease is given up.
OVERTIME_SECONDS = 30.0
# What is left at the drain's deadline gets this long to be settled.
SETTLE_SECONDS = 0.7
# How long nothing is begun while paid answers can be kept neither in the database nor on disk, before the next look.
SPOOL_SECONDS = 0.5


class Worker:
    """One process's worth of claiming and running. `run` loops, `run_once` looks for work once."""

    def __init__(
        self, settings: Settings, child: Child, kinds: Mapping[str, Kind], *, queues: list[str] | None = None
    ) -> None:
        self._settings = settings
        self._child = child
        self._dsn = settings.require_database_url()
        self._kinds = {name: kind for name, kind in kinds.items() if kind.settings.isolate == child.isolated}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._signals = ChildSignals(self._wake_write)
        self._holdings = Holdings()
        self._notifier = Notifier(self._dsn, application_name=self._name("notifier"))
        self._spool = Spool(folder_of(settings.data_dir), child.worker_id)
        self._writer = Writer(
            lambda: self._connect("writer", lock_seconds=writer.LOCK_SECONDS),
            self._notifier,
            self._spool,
        )
        self._emitter = Emitter(self._writer)
        self._threads = 1 if child.isolated else settings.threads
        self._slots = Slots(self._threads, run=self._run_claim, freed=self._freed)
        self._providers = self._find_providers()
        self._strays = Strays(self._providers, self._writer)
        self._courier = Courier(
            lambda: self._connect("courier"), worker_id=child.worker_id, allowed=settings.webhooks_allow
        )
        self._backoffs = {name: backoff_of(kind.settings) for name, kind in kinds.items()}
        self._reaper = Reaper(
            lambda: self._connect("reaper"),
            worker_id=child.worker_id,
            interval_seconds=settings.reap_seconds,
            grace_seconds=2 * settings.heartbeat_seconds,
            backoffs=self._backoffs,
            notifier=self._notifier,
            strays=self._strays,
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
        self._gates = Gates(
            {name: fingerprint(provider_api_key(settings.providers[name])) for name in self._providers}, self._writer
        )
        self._claimer = Claimer(
            settings,
            self._claims,
            worker_id=child.worker_id,
            queues=queues,
            kinds=self._kinds,
            gates=self._gates,
            notifier=self._notifier,
            start=self._start,
            cancel=self._look_for_cancels,
            reaper_vacant=self._reaper.duty_is_vacant,
            courier_vacant=self._courier.duty_is_vacant,
        )
        self._overseer = Overseer(self._holdings, self._give_up)
        self._worn = False  # a handler was given up, and its thread goes on
        self._desk = Desk(self._kinds, self._providers, self._writer, self._emitter, self._gates)

    def run(self) -> int:
        """Work until told to drain, or until the supervisor is gone. Returns the exit code."""
        self._open_spool()
        for thread in (
            self._writer,
            self._emitter,
            self._heartbeat,
            self._reaper,
            self._overseer,
            self._strays,
            self._courier,
        ):
            thread.start()
        while not self._signals.draining and not self._worn:
            self._wait(self.run_once())
        return self._drain()

    def run_once(self) -> float:
        """Look for work if a slot is free; for how many seconds to wait then, at most."""
        if not self._spool.usable:
            return SPOOL_SECONDS
        if self._slots.free:
            self._claimer.look(lambda: self._slots.free, self._threads)
        if not self._slots.free:
            return self._settings.poll_seconds  # a freed slot ends the wait
        return self._claimer.due_in

    def _database_is_back(self) -> None:
        self._reaper.database_is_back()
        self._claimer.database_is_back()

    def _open_spool(self) -> None:
        try:
            self._spool.open()
        except OSError as error:
            log.warning(
                "paid answers cannot be kept on disk while the database is away (AIJOBS_DATA_DIR=%s): %s",
                self._settings.data_dir,
                error,
            )

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

    def _look_for_cancels(self, job_ids: Collection[UUID]) -> None:
        """A hint says that some jobs are to be cancelled: a heartbeat learns it of those that are ours."""
        if any(held.claim.job_id in job_ids for held in self._holdings.all()):
            self._heartbeat.beat()

    def _run_claim(self, held: HeldClaim) -> None:
        try:
            delay = None
            # An interrupt that was meant for a handler may arrive when it has just ended.
            with contextlib.suppress(HandlerOverran):
                delay = run_attempt(held, self._desk)
        finally:
            self._holdings.remove(held)
        if delay is not None:  # our own job is back in line, or will be: nobody else need tell us
            self._claimer.look_in(delay)

    def _give_up(self, held: HeldClaim, error: HandlerOverran) -> None:
        """Settle the job of a handler that does not stop, and free its slot for as long as the process lives."""
        self._worn = True
        try:
            end_attempt(held, self._desk, None, error)
        finally:
            self._holdings.remove(held)
            self._slots.abandon(held)

    def _freed(self) -> None:
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
            self._claimer.hear()

    def _drain(self) -> int:
        """Let running attempts finish, then stop what is left; heartbeats go on until the last one has ended."""
        log.info("draining: %d attempts are running", len(self._holdings))
        self._courier.retire()
        self._await_empty(self._settings.drain_seconds, until_hurried=True)
        for held in self._holdings.all():
            held.abort("drain")
        self._await_empty(SETTLE_SECONDS, until_hurried=False)
        self._emitter.stop()
        self._strays.stop()
        self._courier.stop()
        self._writer.close(within_seconds=0.2)
        self._overseer.stop()
        self._heartbeat.stop()
        self._reaper.stop()
        self._spool.close()
        settled = not len(self._holdings) or self._end_stuck()
        self._notifier.close()
        metrics.flush()
        self._claims.close()
        log.info("drained")
        return 0 if settled else 1

    def _end_stuck(self) -> bool:
        """Settle what is still held; False if that is left to others. What was kept on disk is delivered first."""
        try:
            connection = self._claims.opened()
            deliver(folder_of(self._settings.data_dir), connection)
            end_stuck(connection, self._child.worker_id, self._backoffs, self._notifier)
        except (AijobsError, OSError) as error:
            log.warning("%d attempts are left to the reaper: %s", len(self._holdings), error)
            return False
        return True

    def _await_empty(self, seconds: float, *, until_hurried: bool) -> None:
        give_up_at = elapsed() + seconds
        while len(self._holdings) and elapsed() < give_up_at and not (until_hurried and self._signals.hurry):
            # Hints are heard still: a cancel is asked for while its job is being finished, too.
            self._wait(min(1.0, max(0.0, give_up_at - elapsed())))

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
