"""One line on a terminal that says how a job stands; nothing at all elsewhere."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Self

from aijobs.client import Job
from aijobs.clock import elapsed

TICK_SECONDS = 0.5
_ERASE = "\r\x1b[K"
_STATUS_OF_EVENT = {
    "job.queued": "queued",
    "job.started": "running",
    "job.retry_scheduled": "queued",
    "job.held": "held",
    "job.cancel_requested": "cancelling",
}


class Progress:
    """Shows elapsed time, status and attempts on stderr while the block runs, and leaves no trace of it."""

    def __init__(self, status: str) -> None:
        self._status = status
        self._attempts = 0
        self._begun_at = elapsed()
        self._shown = sys.stderr.isatty()
        self._over = threading.Event()
        # Two threads write: the line must not come back after it was hidden for the text.
        self._lock = threading.Lock()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._shown:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()
        self._over.set()
        if self._ticker.is_alive():
            self._ticker.join()

    def saw_job(self, job: Job) -> None:
        self._status, self._attempts = job.status, job.attempts

    def saw_event(self, type_: str) -> None:
        self._status = _STATUS_OF_EVENT.get(type_, self._status)
        self._attempts += type_ == "job.started"

    def hide(self) -> None:
        """Make room for text, for good."""
        with self._lock:
            if self._shown:
                self._shown = False
                self._write(_ERASE)

    def _tick(self) -> None:
        while True:
            with self._lock:
                if self._shown:
                    self._write(f"{_ERASE}{self._line()}")
            if self._over.wait(TICK_SECONDS):
                return

    def _line(self) -> str:
        attempts = f", attempt {self._attempts}" if self._attempts else ""
        return f"{elapsed() - self._begun_at:.0f} s  {self._status}{attempts}"

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal is gone; the job matters more
            self._shown = False
