"""The job slots of a process: a fixed number of threads that run one attempt each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from workers.held import HeldClaim


class Slots:
    """Up to `count` attempts at once. Threads are made when first needed; `freed` is called as each attempt ends."""

    def __init__(self, count: int, *, run: Callable[[HeldClaim], None], freed: Callable[[], None]) -> None:
        self._count = count
        self._run = run
        self._freed = freed
        self._lock = threading.Lock()
        self._busy = 0
        self._idle_threads = 0
        self._work: SimpleQueue[HeldClaim] = SimpleQueue()
        self._abandoned: set[HeldClaim] = set()

    @property
    def free(self) -> int:
        return self._count - self._busy

    def start(self, held: HeldClaim) -> None:
        """Run the claim's attempt in a slot. The caller has seen that one is free."""
        with self._lock:
            self._busy += 1
            make_thread = self._idle_threads == 0
            if not make_thread:
                self._idle_threads -= 1
        self._work.put(held)
        if make_thread:
            # Daemon: a handler that never returns must not keep a drained process alive.
            threading.Thread(target=self._serve, name="slot", daemon=True).start()

    def abandon(self, held: HeldClaim) -> None:
        """Give the slot of an attempt away whose thread does not come back; it ends if it ever does."""
        with self._lock:
            self._abandoned.add(held)
            self._busy -= 1
        self._freed()

    def _serve(self) -> None:
        while True:
            held = self._work.get()
            try:
                self._run(held)
            finally:
                with self._lock:
                    gone = held in self._abandoned
                    self._abandoned.discard(held)
                    self._busy -= not gone
                    self._idle_threads += not gone
                self._freed()
            if gone:
                return
