"""The simulator as a child process: the one to use where this process forks, or needs its processor time itself."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import aijobs
from aijobs.simulator.options import Options

# A stop breaks everything off and takes milliseconds; a machine under full load gets this long.
_STOP_SECONDS = 10.0
_REPLY_SECONDS = 30.0


class SimulatorProcess:
    """As `Simulator`, in a process of its own that ends with this one at the latest."""

    def __init__(self, **options: Any) -> None:
        self.options = Options(**options)
        self.url = ""

    def start(self) -> None:
        """Return when it listens. Raises RuntimeError if it does not; the reason is on standard error."""
        # -m looks in the working directory first, so that the child runs this aijobs and no other.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "aijobs.simulator", json.dumps(asdict(self.options))],
            cwd=Path(aijobs.__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            self.stop()
            raise RuntimeError("the simulator did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stats(self) -> dict[str, Any]:
        answered: dict[str, Any] = self._ask("GET", "/simulator/stats")
        return answered

    def calls(self, marker: str | None = None) -> list[dict[str, Any]]:
        query = "" if marker is None else f"?marker={quote(marker, safe='')}"
        answered: list[dict[str, Any]] = self._ask("GET", f"/simulator/calls{query}")
        return answered

    def paid(self, marker: str | None = None) -> int:
        """How many generations somebody would have to pay for, as far as the records reach back."""
        return sum(call["generation"] for call in self.calls(marker))

    def reset(self) -> None:
        self._ask("POST", "/simulator/reset")

    def stop(self) -> int:
        """End it and return its exit code. A process that does not end by itself is killed."""
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def __enter__(self) -> SimulatorProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _ask(self, method: str, path: str) -> Any:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_REPLY_SECONDS)
        try:
            connection.request(method, path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()
