"""What attempts say as they go, gathered: one write for all the pieces of output of a tick, whatever their number.

The pieces of one job are written in their order: none is handed to the writer before those ahead of it are answered.
"""

from __future__ import annotations

import threading
from uuid import UUID

from aijobs.domain.claims import Claim
from aijobs.errors import AijobsError
from aijobs.store.attempts import Said
from workers.writer import Report, Writer

TICK_SECONDS = 0.1


class Emitter(threading.Thread):
    """Writes buffered output every tick while there is any. One per process."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(name="emitter", daemon=True)
        self._writer = writer
        # By run token: the job, and what it has said since the last write.
        self._buffered: dict[UUID, tuple[UUID, list[str]]] = {}
        self._under_way: dict[UUID, Report] = {}
        self._changed = threading.Condition()
        self._stopping = False

    def emit(self, claim: Claim, text: str) -> None:
        with self._changed:
            _, pieces = self._buffered.setdefault(claim.run_token, (claim.job_id, []))
            pieces.append(text)
            self._changed.notify()

    def flush(self, claim: Claim) -> None:
        """Write what the attempt has said. To be called before it is settled. Raises what the writer raises."""
        with self._changed:
            said = self._buffered.pop(claim.run_token, None)
            ahead = self._under_way.get(claim.run_token)
        if ahead is not None:
            ahead.wait()
        if said is not None:
            self._writer.emit([_joined(claim.run_token, said)])[0].wait()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        while self._wait():
            with self._changed:
                said = [_joined(run_token, buffered) for run_token, buffered in self._buffered.items()]
                self._buffered = {}
                self._under_way = {
                    one.run_token: report for one, report in zip(said, self._writer.emit(said), strict=True)
                }
            try:
                for report in self._under_way.values():
                    report.wait()
            except AijobsError:
                # The writer gives up only when the process ends: the attempts are settled without their last words.
                self._stopping = True

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._buffered or self._stopping)
            if not self._stopping:
                self._changed.wait_for(lambda: self._stopping, TICK_SECONDS)
            return not self._stopping


def _joined(run_token: UUID, buffered: tuple[UUID, list[str]]) -> Said:
    job_id, pieces = buffered
    return Said(job_id, run_token, "".join(pieces))
