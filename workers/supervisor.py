"""Forking worker processes, replacing those that die, and stopping them in order.

The supervisor holds nothing that a child could inherit: no connection, no thread, no socket, only pipes. Its handlers
set flags; one loop does everything. Each child reads `parent_fd`, which ends when the supervisor does, and writes its
pulse.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from workers.exit_codes import BAD_CONFIGURATION, BOOT_FAILED, SCHEMA_MISMATCH
from workers.signals import DRAIN, HURRY

log = logging.getLogger(__name__)

# A stopped process (SIGSTOP, a debugger) keeps its jobs from everybody; it gets this long to go on.
STOPPED_SECONDS = 3.0
# Beyond the drain deadline a child settles what is left; after this it is killed.
KILL_AFTER_SECONDS = 5.0
HURRY_SECONDS = 2.0
# A child that dies younger than this never did any work, and is replaced ever more slowly, up to the cap. One that has
# worked is replaced at once however it died: its place is needed.
YOUNG_SECONDS = 1.0
RESTART_BASE_SECONDS = 0.1
RESTART_CAP_SECONDS = 5.0
# How long the release of a dead child's jobs may still take when everything else has ended.
RELEASE_SECONDS = 5.0
TICK_SECONDS = 0.5
_FATAL = {
    BAD_CONFIGURATION: "the configuration is unusable",
    BOOT_FAILED: "a worker could not start",
    SCHEMA_MISMATCH: "the database schema does not fit",
}
_BLOCKED_OVER_FORK = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, DRAIN, HURRY)


@dataclass(frozen=True, slots=True)
class Child:
    """What a worker process is given: who it is, its two pipes, and whether it runs isolated kinds, one at a time."""

    worker_id: str
    parent_fd: int
    pulse_fd: int
    isolated: bool = False


@dataclass(slots=True)
class _Running:
    pid: int
    index: int
    worker_id: str
    pulse_fd: int
    started_at: float
    pulsed_at: float
    stopped_at: float | None = None


@dataclass(slots=True)
class _Place:
    """One of the N places for a child: how often it failed young, and when it is to be filled again."""

    isolated: bool
    failures: int = 0
    restart_at: float = 0.0
    child: _Running | None = field(default=None)


class Supervisor:
    """Keeps `processes` children alive until told to stop, and `isolated` more for isolated kinds.

    `run_child` is the child's main function and returns its exit status. `release_dead` gives the jobs of a dead child
    back; it may use the network, so it runs in a short-lived process of its own.
    """

    def __init__(
        self,
        *,
        processes: int,
        isolated: int = 0,
        drain_seconds: float,
        hang_seconds: float,
        run_child: Callable[[Child], int],
        release_dead: Callable[[str], None],
    ) -> None:
        self._places = [_Place(isolated=number >= processes) for number in range(processes + isolated)]
        self._drain_seconds = drain_seconds
        self._hang_seconds = hang_seconds
        self._run_child = run_child
        self._release_dead = release_dead
        self._helpers: set[int] = set()
        self._asked_to_stop = 0  # how often, by signal
        self._stops_handled = 0
        self._kill_at: float | None = None
        self._exit_code = 0
        self._ticked_at = time.monotonic()

    def run(self) -> int:
        """Supervise until stopped. Returns the exit status: 0 when every child drained."""
        self._life_read, self._life_write = os.pipe()
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(wake_write, False)
        self._wake_write = wake_write
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, self._on_child)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        while not self._finished():
            self._obey()
            self._fill_places()
            self._wait()
            self._collect()
            self._kill_the_silent()
        self._end_helpers()
        return self._exit_code

    # Signal handlers: flags only.

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_stop += 1

    def _on_child(self, number: int, frame: FrameType | None) -> None:
        pass  # the wake-up byte is all that is needed

    # The loop's steps.

    def _stopping(self) -> bool:
        return self._kill_at is not None

    def _finished(self) -> bool:
        return self._stopping() and not self._children()

    def _children(self) -> list[_Running]:
        return [place.child for place in self._places if place.child is not None]

    def _obey(self) -> None:
        while self._stops_handled < self._asked_to_stop:
            self._stops_handled += 1
            if self._stops_handled == 1:
                self._stop(DRAIN, self._drain_seconds + KILL_AFTER_SECONDS)
            else:
                self._stop(HURRY, HURRY_SECONDS)

    def _stop(self, number: signal.Signals, within_seconds: float) -> None:
        log.info("stopping: %d children have %.0f s", len(self._children()), within_seconds)
        self._kill_at = time.monotonic() + within_seconds
        for child in self._children():
            os.kill(child.pid, number)

    def _fill_places(self) -> None:
        now = time.monotonic()
        for index, place in enumerate(self._places):
            if not self._stopping() and place.child is None and now >= place.restart_at:
                place.child = self._fork(index)

    def _wait(self) -> None:
        """Wait for a signal or a tick; take the pulses; forgive the children whatever time we ourselves lost."""
        pulses = {child.pulse_fd: child for child in self._children()}
        ready, _, _ = select.select([self._wake_read, *pulses], [], [], self._patience())
        now = time.monotonic()
        late = max(0.0, now - self._ticked_at - TICK_SECONDS - 0.5)
        for child in pulses.values():
            child.pulsed_at += late
            if child.stopped_at is not None:
                child.stopped_at += late
        self._ticked_at = now
        for descriptor in ready:
            taken = os.read(descriptor, 4096)
            if descriptor in pulses and taken:
                pulses[descriptor].pulsed_at = now

    def _patience(self) -> float:
        restarts = [place.restart_at for place in self._places if place.child is None and not self._stopping()]
        wait = min([TICK_SECONDS, *(moment - time.monotonic() for moment in restarts)])
        # A dead child's pulse pipe stays readable; a pause keeps the loop from spinning until it is collected.
        return max(0.005, wait)

    def _collect(self) -> None:
        """Take note of every child that ended, stopped or went on. Unknown ones are orphans given to process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._helpers.discard(pid)
            child = next((child for child in self._children() if child.pid == pid), None)
            if child is None:
                continue
            if os.WIFSTOPPED(status):
                child.stopped_at = time.monotonic()
            elif os.WIFCONTINUED(status):
                child.stopped_at = None
            else:
                self._bury(child, os.waitstatus_to_exitcode(status))

    def _bury(self, child: _Running, code: int) -> None:
        os.close(child.pulse_fd)
        place = self._places[child.index]
        place.child = None
        words = f"exited with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        log.log(
            logging.INFO if code == 0 else logging.WARNING, "worker %s (pid %d) %s", child.worker_id, child.pid, words
        )
        if code != 0:
            self._release(child.worker_id)
        if self._stopping():
            self._exit_code = self._exit_code or (1 if code != 0 else 0)
        elif code in _FATAL:
            log.error("stopping, because %s (exit status %d)", _FATAL[code], code)
            self._exit_code = code
            self._stop(DRAIN, self._drain_seconds + KILL_AFTER_SECONDS)
        else:
            self._plan_restart(place, child, code)

    def _plan_restart(self, place: _Place, child: _Running, code: int) -> None:
        now = time.monotonic()
        young = code != 0 and now - child.started_at < YOUNG_SECONDS
        place.failures = place.failures + 1 if young else 0
        delay = 0.0
        if place.failures > 1:
            delay = min(RESTART_CAP_SECONDS, RESTART_BASE_SECONDS * 2 ** min(place.failures - 2, 20))
        place.restart_at = now + delay

    def _kill_the_silent(self) -> None:
        now = time.monotonic()
        for child in self._children():
            if self._kill_at is not None and now >= self._kill_at:
                self._kill(child, "did not end in time")
            elif child.stopped_at is not None:
                if now - child.stopped_at >= STOPPED_SECONDS:
                    self._kill(child, f"was stopped for {STOPPED_SECONDS:g} s")
            elif now - child.pulsed_at >= self._hang_seconds:
                self._kill(child, f"gave no sign of life for {self._hang_seconds:g} s")

    def _kill(self, child: _Running, why: str) -> None:
        log.warning("killing worker %s (pid %d): it %s", child.worker_id, child.pid, why)
        os.kill(child.pid, signal.SIGKILL)
        child.pulsed_at = time.monotonic()  # once is enough
        child.stopped_at = None

    # Forking.

    def _fork(self, index: int) -> _Running:
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        nonce = secrets.token_hex(4)
        isolated = self._places[index].isolated
        pid = self._fork_blocked()
        if pid == 0:
            worker_id = f"{socket.gethostname()}-{os.getpid()}-{nonce}"
            os.close(read_fd)
            self._become_child(lambda: self._run_child(Child(worker_id, self._life_read, write_fd, isolated)))
        os.close(write_fd)
        now = time.monotonic()
        return _Running(pid, index, f"{socket.gethostname()}-{pid}-{nonce}", read_fd, now, now)

    def _release(self, worker_id: str) -> None:
        pid = self._fork_blocked()
        if pid == 0:
            self._become_child(lambda: self._release_dead(worker_id) or 0)
        self._helpers.add(pid)

    def _fork_blocked(self) -> int:
        """Fork with signals blocked, so that none meets the parent's handlers in the child.

        A child unblocks them when it has handlers of its own (ChildSignals); what came in between is then delivered.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_OVER_FORK)
        pid = os.fork()
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED_OVER_FORK)
        return pid

    def _become_child(self, main: Callable[[], int]) -> None:
        """Run `main` in the forked process and end it. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (*_BLOCKED_OVER_FORK, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            # Held by a child, the life pipe would outlive the supervisor, and a sibling's pulse the sibling.
            inherited = [self._life_write, self._wake_read, self._wake_write]
            for descriptor in (*inherited, *(child.pulse_fd for child in self._children())):
                os.close(descriptor)
            code = main()
        except BaseException:  # noqa: BLE001 - the process ends here, and must never go on to run the supervisor's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _end_helpers(self) -> None:
        """Let the releases finish, for a while."""
        give_up_at = time.monotonic() + RELEASE_SECONDS
        while self._helpers and time.monotonic() < give_up_at:
            self._wait()
            self._collect()
        for pid in self._helpers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
