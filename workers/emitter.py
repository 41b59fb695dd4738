"""What attempts say as they go, gathered: one write for all the pieces of output of a tick, whatever their number.

The pieces of one job are written in their order, because the writer takes reports in theirs.
"""

from __future__ import annotations

import threading
from uuid import UUID

from aijobs.domain.claims import Claim
from aijobs.errors import AijobsError
from aijobs.store.attempts import Said
from workers.writer import Writer

TICK_SECONDS = 0.1


class Emitter(threading.Thread):
    """Writes buffered output every tick while there is any. One per process."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(name="emitter", daemon=True)
        self._writer = writer
        self._buffered: dict[UUID, tuple[UUID, list[str]]] = {}
        self._changed = threading.Condition()
        self._stopping = False

    def emit(self, claim: Claim, text: str) -> None:
        with self._changed:
            _, pieces = self._buffered.setdefault(claim.job_id, (claim.run_token, []))
            pieces.append(text)
            self._changed.notify()

    def flush(self, claim: Claim) -> None:
        """Write what the attempt has said. To be called before it is settled. Raises what the writer raises."""
        with self._changed:
            said = self._buffered.pop(claim.job_id, None)
        if said is not None:
            self._writer.emit([Said(claim.job_id, said[0], "".join(said[1]))])

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        while self._wait():
            with self._changed:
                taken, self._buffered = self._buffered, {}
            said = [Said(job_id, run_token, "".join(pieces)) for job_id, (run_token, pieces) in taken.items()]
            if said:
                self._write(said)

    def _write(self, said: list[Said]) -> None:
        try:
            self._writer.emit(said)
        except AijobsError:
            # The writer gives up only when the process ends; the attempts are then settled without their last words.
            self._stopping = True

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._buffered or self._stopping)
            if not self._stopping:
                self._changed.wait_for(lambda: self._stopping, TICK_SECONDS)
            return not self._stopping
