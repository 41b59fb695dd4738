"""The thread that ends exchanges at their deadlines.

`requests` has no total deadline: its timeouts start anew with every byte, so that a reply that drips never times out.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading

from aijobs.clock import elapsed
from aijobs.providers.exchange import Exchange

# A wait stands still while the machine sleeps, and the deadline's clock does not: so the thread looks this often.
_LOOK_SECONDS = 1.0


class Watchdog:
    """Ends each watched exchange when its time is up. The thread starts with the first one, in any process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Exchange]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def watch(self, exchange: Exchange) -> None:
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                thread.start()
                self._thread = thread
            heapq.heappush(self._heap, (exchange.deadline_at, next(self._numbers), exchange))
            self._changed.notify()

    def forget(self, exchange: Exchange) -> None:
        with self._changed:
            self._heap = [entry for entry in self._heap if entry[2] is not exchange]
            heapq.heapify(self._heap)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._heap:
                    self._changed.wait()
                remaining = self._heap[0][0] - elapsed()
                if remaining > 0:
                    self._changed.wait(min(remaining, _LOOK_SECONDS))
                    continue
                _, _, exchange = heapq.heappop(self._heap)
            exchange.abort("deadline")


watchdog = Watchdog()
# Threads do not survive a fork, and a lock may have been held at its moment: a child begins with nothing.
os.register_at_fork(after_in_child=watchdog.__init__)  # type: ignore[misc]
