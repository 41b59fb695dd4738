"""The one thread of a process that writes what its attempts report, as many at once as wait.

A commit costs far more than a row, so whatever has queued up while the last commit was under way goes into the next.
Alone, a report goes at once: nothing waits for company. Each report may be repeated after a broken connection, because
the statements recognise their own earlier success; so reports wait through an outage of the database and are not lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from aijobs.clock import elapsed
from aijobs.domain.claims import Settled
from aijobs.errors import AijobsError, Contention, StoreUnavailable
from aijobs.store import attempts, calls, claims, gates
from aijobs.store.db import Connection
from aijobs.store.notify import Notifier
from workers.reports import SEEN, WRITES, Leave, job_of
from workers.spool import Spool, drop

log = logging.getLogger(__name__)

# Between two tries while the database is away: short at first, because most outages are restarts.
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0)
# While several attempts report at once, a batch waits this long for the others of their kind.
GATHER_SECONDS = 0.001
# A report whose row somebody else has locked waits for the lock for LOCK_SECONDS, in which the others wait too, and
# then steps aside for BLOCKED_SECONDS.
LOCK_SECONDS = 0.1
BLOCKED_SECONDS = 0.5
# One statement takes this many reports at most, so that its locks stay short.
BATCH = 100


class Report:
    """Something to write. `kind` names the batch it can share; the reply is what the statement said of it.

    One locked lock is all that a single waiter needs. A Future, with its condition and callbacks, took a third of the
    time of a process that does nothing but write.
    """

    __slots__ = ("_answered", "_error", "_reply", "done", "kept", "kind", "not_before", "value")

    def __init__(self, kind: str, value: Any) -> None:
        self.kind = kind
        self.value = value
        self.not_before = 0.0
        self.kept: Path | None = None  # where it waits on disk, too
        self.done = False
        self._reply: Any = None
        self._error: AijobsError | None = None
        self._answered = threading.Lock()
        self._answered.acquire()

    def answer(self, reply: Any) -> None:
        if self.kept is not None:
            drop(self.kept)
        self.done = True
        self._reply = reply
        self._answered.release()

    def refuse(self, error: AijobsError) -> None:
        self._error = error
        self._answered.release()

    def wait(self) -> Any:
        """The reply, when it is there. Raises what the report was refused with."""
        with self._answered:
            pass
        if self._error is not None:
            raise self._error
        return self._reply


class Writer(threading.Thread):
    """Writes reports until closed. `connect` opens a connection of its own.

    `notifier` tells the others what was written. `spool` keeps paid answers meanwhile.
    """

    def __init__(self, connect: Callable[[], Connection], notifier: Notifier, spool: Spool) -> None:
        super().__init__(name="writer", daemon=True)
        self._connect = connect
        self._spool = spool
        self._notifier = notifier
        self._connection: Connection | None = None
        self._changed = threading.Condition()
        self._reports: list[Report] = []
        self._in_hand: list[Report] = []  # taken, and not all answered yet
        self._close_at: float | None = None

    def mark_sent(self, intent: calls.Intent) -> Leave:
        """Commit that a request is leaving, and learn whether it may. Waits for the commit, as all of these do."""
        leave: Leave = self._ask(Report("sent", intent))
        return leave

    def note_operation(self, job_id: UUID, run_token: UUID, step: str, operation_id: str) -> None:
        """Commit under which id the provider works on a call."""
        self._ask(Report("named", (job_id, run_token, step, operation_id)))

    def finish_call(self, ending: calls.CallEnding) -> calls.Finished:
        """Record how a call ended, and wake the job if its attempt had been closed before: the answer is late then."""
        return self._told(Report("ended", ending))

    def learn(self, ending: calls.CallEnding) -> calls.Finished:
        """Record what the provider has told of a lost call, whose answer is in the hands of the attempt that asked."""
        return self._told(Report("learnt", ending))

    def note_asked(self, job_id: UUID, run_token: UUID, step: str, provider_cancel: str) -> None:
        """Record that the provider could not say what became of a lost call."""
        self._ask(Report("asked", (job_id, run_token, step, provider_cancel)))

    def forsake(self, job_id: UUID, run_token: UUID) -> None:
        """Record that an attempt will not ask about the calls that its predecessors left open."""
        self._ask(Report("forsaken", (job_id, run_token)))

    def note_cancel(self, stray: calls.Stray, provider_cancel: str) -> None:
        """Record what a provider answered when it was told to stop a call of a job that had ended."""
        self._ask(Report("stopped", (stray, provider_cancel)))

    def reject(self, job_id: UUID, run_token: UUID, steps: Sequence[str]) -> None:
        """Record that a handler refuses the answers of these steps."""
        self._ask(Report("rejected", (job_id, run_token, steps)))

    def refused(self, refusal: gates.Refusal) -> bool:
        """Record a provider's refusal; whether it has shut the gate."""
        return bool(self._ask(Report("refused", refusal)))

    def taken(self, provider: str, key_fingerprint: str) -> bool:
        """Record that a provider takes work; whether there was anything against it."""
        return bool(self._ask(Report("taken", (provider, key_fingerprint))))

    def progress(self, said: attempts.Said) -> bool:
        """Record how far an attempt has come; False if the job is not ours any more."""
        return bool(self._ask(Report("progressed", said)))

    def emit(self, said: Sequence[attempts.Said]) -> list[Report]:
        """Append pieces of output to the events of their jobs. Does not wait: the reports say when they are written."""
        reports = [Report("emitted", one) for one in said]
        self._put(reports)
        return reports

    def accept(self, result: claims.Result) -> claims.Accepted:
        """Accept a result, through outages of the database."""
        accepted: claims.Accepted = self._ask(Report("accepted", result))
        return accepted

    def settle(self, job_id: UUID, run_token: UUID, ending: claims.Ending) -> Settled:
        """Settle an attempt that brought no result."""
        settled: Settled = self._ask(Report("settled", (job_id, run_token, ending)))
        return settled

    def find_earlier(self, job_id: UUID, attempt: int, step: str, request_hash: bytes) -> calls.Earlier:
        """What those before this attempt left of the step."""
        earlier: calls.Earlier = self._ask(Report("found", (job_id, attempt, step, request_hash)))
        return earlier

    def close(self, *, within_seconds: float) -> None:
        """Write what is waiting, for so long at most, and stop."""
        with self._changed:
            self._close_at = elapsed() + within_seconds
            self._changed.notify()
        self.join(within_seconds + 1.0)

    def run(self) -> None:
        busy = False
        while reports := self._take(busy):
            busy = len(reports) > 1
            self._in_hand = reports
            for kind in WRITES:
                batch = [report for report in reports if report.kind == kind]
                for start in range(0, len(batch), BATCH):
                    self._write_with_patience(kind, batch[start : start + BATCH])
        if self._connection is not None:
            self._connection.close()

    def _ask(self, report: Report) -> Any:
        self._put([report])
        return report.wait()

    def _told(self, report: Report) -> calls.Finished:
        finished: calls.Finished = self._ask(report)
        if finished.woken is not None:
            self._notifier.notify(finished.woken)
        return finished

    def _put(self, reports: Sequence[Report]) -> None:
        with self._changed:
            self._reports.extend(reports)
            self._changed.notify()

    def _take(self, busy: bool) -> list[Report]:
        """The reports that wait, at least one; none when it is time to stop and all are written."""
        with self._changed:
            while not self._any_ready() and not (self._closing() and not self._reports):
                self._changed.wait(BLOCKED_SECONDS if self._reports else None)
            if busy and len(self._reports) < BATCH:
                self._changed.wait_for(lambda: len(self._reports) >= BATCH, GATHER_SECONDS)
            now = elapsed()
            ready = [report for report in self._reports if report.not_before <= now]
            self._reports = [report for report in self._reports if report.not_before > now]
            return ready

    def _any_ready(self) -> bool:
        now = elapsed()
        return any(report.not_before <= now for report in self._reports)

    def _closing(self) -> bool:
        return self._close_at is not None

    def _write_with_patience(self, kind: str, batch: Sequence[Report]) -> None:
        """Write one batch, again and again while the database is away, until it is written or time to leave."""
        tries = 0
        while True:
            try:
                replies = self._write(kind, batch)
            except StoreUnavailable as error:
                self._disconnect()
                self._keep(batch)
                if self._out_of_time(batch, error):
                    return
                log.warning("%d reports wait for the database: %s", len(batch), error)
                with self._changed:
                    self._changed.wait_for(self._closing, RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
                tries += 1
            except AijobsError as error:
                # A value that the database refuses, or a row that somebody has locked, must not hold up the others.
                if len(batch) > 1:
                    for report in batch:
                        self._write_with_patience(kind, [report])
                elif not isinstance(error, Contention):
                    batch[0].refuse(error)
                elif not self._out_of_time(batch, error):
                    self._put_off(batch[0])
                return
            else:
                if tries:
                    self._spool.retry()
                for report, reply in zip(batch, replies, strict=True):
                    report.answer(reply)
                self._tell(kind, batch)
                return

    def _tell(self, kind: str, batch: Sequence[Report]) -> None:
        """Tell those who follow the jobs what was written."""
        if kind == "emitted":
            self._notifier.said(job_of(kind, report.value) for report in batch)
        elif kind in SEEN:
            self._notifier.changed(job_of(kind, report.value) for report in batch)

    def _keep(self, batch: Sequence[Report]) -> None:
        """Put on disk what is worth money and may have to wait for long, be it in the batch or behind it."""
        with self._changed:
            waiting = [*batch, *self._in_hand, *self._reports]
        for report in waiting:
            if report.kept is None and not report.done:
                report.kept = self._spool.keep(report.kind, report.value)

    def _out_of_time(self, batch: Sequence[Report], error: AijobsError) -> bool:
        """Whether it is time to leave; the reports are then refused."""
        if self._close_at is None or elapsed() < self._close_at:
            return False
        self._keep(batch)
        for report in batch:
            report.refuse(error)
        return True

    def _put_off(self, report: Report) -> None:
        log.warning("a job's row is locked by somebody else, its report waits")
        report.not_before = elapsed() + BLOCKED_SECONDS
        with self._changed:
            self._reports.append(report)

    def _write(self, kind: str, batch: Sequence[Report]) -> list[Any]:
        if self._connection is None:
            self._connection = self._connect()
        return WRITES[kind](self._connection, [report.value for report in batch])

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
