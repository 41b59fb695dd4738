"""How many request threads may be kept by those who wait for a job or follow one."""

from __future__ import annotations

import threading

# So many threads, or a quarter of all, answer everything else: a page full of streams must not stop new jobs.
LEAST_RESERVE = 4


class Seats:
    """A bound on waits and streams together in one process. Each seat that was taken is to be given back once."""

    def __init__(self, threads: int) -> None:
        self.most = max(0, threads - max(LEAST_RESERVE, threads // 4))
        self._taken = 0
        self._changing = threading.Lock()

    @property
    def taken(self) -> int:
        return self._taken

    def take(self) -> bool:
        """Take a seat; False if there is none."""
        with self._changing:
            if self._taken >= self.most:
                return False
            self._taken += 1
            return True

    def give_back(self) -> None:
        with self._changing:
            self._taken -= 1
