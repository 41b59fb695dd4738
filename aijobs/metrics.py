"""Every metric, one named function each. Off, they do nothing; on, they never block and never fail what they count.

A measurement is an append to a queue in memory; a thread of the process sends what has gathered. The daemon's name is
resolved in that thread, and again each minute, so that one that moves, or appears late, is found. After a fork the
child starts with an empty queue and, at its first measurement, a thread and a socket of its own; what the parent had
gathered is the parent's to send.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import re
import threading
from collections import Counter, deque

from statsd import StatsClient

from aijobs.clock import elapsed
from aijobs.domain.failures import Usage

log = logging.getLogger(__name__)

# Measurements gather this long before they are sent: counters of one name then travel as one sum.
GATHER_SECONDS = 0.2
RESOLVE_AGAIN_SECONDS = 60.0
RETRY_SECONDS = 5.0
WARN_SECONDS = 60.0
# What gathers while the host cannot be resolved; some 3 MB. Beyond it new measurements are dropped and counted.
MOST_PENDING = 20_000
# Fits one Ethernet frame; a fragmented datagram is lost whole if one part is.
MOST_DATAGRAM_BYTES = 1432
_NOT_FOR_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class _Sender:
    """A queue of measurements and the thread that sends them."""

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self._host, self._port, self._prefix = host, port, prefix
        self._retired = False
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything that belongs to another process: the queue, the thread, locks that it may have held."""
        self._pending: deque[tuple[str, float, bool]] = deque()
        self._flushes: deque[threading.Event] = deque()
        self._work_is_there = threading.Event()
        self._hurry = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._client: StatsClient | None = None
        self._resolved_at = self._tried_at = self._warned_at = float("-inf")

    def add(self, name: str, value: float, is_timer: bool) -> None:
        if len(self._pending) >= MOST_PENDING:
            self._dropped += 1
            return
        self._pending.append((name, value, is_timer))
        if not self._work_is_there.is_set():
            self._rouse()

    def flush(self, within_seconds: float) -> None:
        if not self._pending and self._thread is None:
            return
        done = threading.Event()
        self._flushes.append(done)
        self._hurry.set()
        self._rouse()
        done.wait(within_seconds)

    def retire(self) -> None:
        """End the thread once it has sent what is there; another sender takes over."""
        self._retired = True
        self._hurry.set()
        self._work_is_there.set()

    def _rouse(self) -> None:
        self._work_is_there.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="metrics", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:
                        return  # no thread can be started now, the interpreter may be ending; the next call tries again
                    self._thread = thread

    def _run(self) -> None:
        while True:
            self._work_is_there.wait()
            self._hurry.wait(GATHER_SECONDS)
            # Cleared before looking: what is added from here on rouses the next round.
            self._work_is_there.clear()
            self._hurry.clear()
            flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
            client = self._resolved_client()
            if client is not None:
                self._send(client)
            for done in flushes:
                done.set()
            if self._retired:
                return
            if client is None:
                self._hurry.wait(RETRY_SECONDS)
                self._work_is_there.set()

    def _send(self, client: StatsClient) -> None:
        sums: Counter[str] = Counter()
        with client.pipeline() as pipeline:
            for _ in range(len(self._pending)):
                name, value, is_timer = self._pending.popleft()
                if is_timer:
                    pipeline.timing(name, value)
                else:
                    sums[name] += int(value)
            for name, total in sums.items():
                pipeline.incr(name, total)
        if self._dropped:
            self._warn("%d measurements were dropped: more came in than could be sent", self._dropped)
            self._dropped = 0

    def _resolved_client(self) -> StatsClient | None:
        """A client for where the host is now; the last known place while it does not resolve; None if it never did."""
        now = elapsed()
        if now - self._resolved_at < RESOLVE_AGAIN_SECONDS or now - self._tried_at < RETRY_SECONDS:
            return self._client
        self._tried_at = now
        try:
            fresh = self._connected()
        except (OSError, UnicodeError) as error:
            self._warn("StatsD host %r does not resolve, metrics wait: %s", self._host, error)
            return self._client
        if self._client is not None:
            self._client.close()
        self._client, self._resolved_at = fresh, elapsed()
        return fresh

    def _connected(self) -> StatsClient:
        place = {"host": self._host, "port": self._port, "prefix": self._prefix, "maxudpsize": MOST_DATAGRAM_BYTES}
        try:
            return StatsClient(**place)
        except OSError:
            return StatsClient(**place, ipv6=True)

    def _warn(self, message: str, *arguments: object) -> None:
        if elapsed() - self._warned_at >= WARN_SECONDS:
            self._warned_at = elapsed()
            log.warning(message, *arguments)


_sender: _Sender | None = None


def configure(statsd: tuple[str, int] | None, prefix: str = "aijobs") -> None:
    """Send to the daemon at (host, port) from now on, or nowhere. Opens nothing yet; may be called before a fork."""
    global _sender
    if _sender is not None:
        _sender.retire()
    _sender = None if statsd is None else _Sender(*statsd, prefix)


def flush(within_seconds: float = 1.0) -> None:
    """Send what has gathered. For the end of a process: returns when it is sent, cannot be, or after the given time."""
    if _sender is not None:
        _sender.flush(within_seconds)


def _begin_anew() -> None:
    if _sender is not None:
        _sender.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(flush)


def _count(name: str, amount: int = 1) -> None:
    if _sender is not None and amount:
        _sender.add(name, amount, False)


def _time(name: str, value: float) -> None:
    if _sender is not None:
        _sender.add(name, max(0.0, value), True)


@functools.lru_cache(maxsize=1024)
def _part(text: str | None) -> str:
    """Text from outside as one part of a metric's path."""
    return _NOT_FOR_NAMES.sub("_", text)[:80] if text else "none"


def job_created() -> None:
    _count("jobs_created")


def job_replayed() -> None:
    _count("jobs_replayed")


def job_accepted() -> None:
    _count("jobs_accepted")


def job_failed() -> None:
    _count("jobs_failed")


def job_cancelled() -> None:
    _count("jobs_cancelled")


def job_held() -> None:
    _count("jobs_held")


def job_retried() -> None:
    _count("job_retries")


def lease_expired(count: int) -> None:
    _count("lease_expired_count", count)


def leases_lost(count: int) -> None:
    _count("leases_lost", count)


def late_result() -> None:
    _count("late_results")


def result_reused() -> None:
    _count("results_reused")


def provider_attempt() -> None:
    _count("provider_attempts")


def provider_unknown_outcome() -> None:
    _count("provider_unknown_outcomes")


def provider_outcome(provider: str, model: str | None, outcome: str) -> None:
    _count(f"provider.{_part(provider)}.{_part(model)}.outcome.{_part(outcome)}")


def tokens(provider: str, model: str | None, usage: Usage) -> None:
    path = f"tokens.{_part(provider)}.{_part(model)}"
    _count(f"{path}.input", usage.input_tokens or 0)
    _count(f"{path}.cached", usage.cached_tokens or 0)
    _count(f"{path}.output", usage.output_tokens or 0)
    _count(f"{path}.reasoning", usage.reasoning_tokens or 0)


def cost(provider: str, model: str | None, micros: int) -> None:
    _count(f"provider.{_part(provider)}.{_part(model)}.cost_micros", micros)


def queue_wait(milliseconds: float) -> None:
    _time("queue_wait", milliseconds)


def time_to_result(milliseconds: float) -> None:
    _time("time_to_result", milliseconds)


def attempts_per_job(count: int) -> None:
    _time("attempts_per_job", count)


def run_duration(milliseconds: float) -> None:
    _time("run_duration", milliseconds)


def attempt_duration(milliseconds: float) -> None:
    _time("attempt_duration", milliseconds)


def time_to_first_byte(milliseconds: float) -> None:
    _time("time_to_first_byte", milliseconds)


def api_request(route: str, method: str, status: int, milliseconds: float) -> None:
    _time(f"api.{_part(route)}.{_part(method)}.{status // 100}xx", milliseconds)
