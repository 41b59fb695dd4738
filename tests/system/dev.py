"""`aijobs dev` as a person starts it, and what its simulator was paid for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aijobs.cli.stack import free_port

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
WAIT_SECONDS = 30.0


class Dev:
    """A running `aijobs dev`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.url = ""
        self._simulator = ""

    def wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while "Ctrl-C stops everything" not in self.log():
            assert self._process.poll() is None and time.monotonic() < give_up_at, self.log()
            time.sleep(0.05)
        self.url = self._said(r"^API +(\S+)")
        self._simulator = self._said(r"^simulator +(\S+)/v1")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _said(self, pattern: str) -> str:
        found = re.search(pattern, self.log(), re.MULTILINE)
        assert found, self.log()
        return found[1]

    def kill_web_processes(self) -> None:
        """Kill the processes that serve the API, with -9. gunicorn starts others."""
        for program in _children(self._process.pid):
            if b"wsgi:app" in Path(f"/proc/{program}/cmdline").read_bytes():
                for pid in _children(program):
                    os.kill(pid, signal.SIGKILL)

    def job(self, job_id: str) -> Any:
        return _get(f"{self.url}/api/ai/jobs/{job_id}")

    def jobs(self) -> list[Any]:
        """The newest jobs, the newest first."""
        data: list[Any] = _get(f"{self.url}/api/ai/jobs?limit=100")["data"]
        return data

    def calls_of(self, job_id: str) -> list[Any]:
        """The complete requests for this job, by the provider's own records."""
        calls = _get(f"{self._simulator}/simulator/calls")
        return [call for call in calls if str(call["client_request_id"]).startswith(job_id)]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)


def wait_for(fact: Callable[[], bool], what: str, pause: Callable[[], None] = lambda: time.sleep(0.05)) -> None:
    """Return when something has become true. `pause` is called between two looks."""
    give_up_at = time.monotonic() + WAIT_SECONDS
    while not fact():
        assert time.monotonic() < give_up_at, what
        pause()


@contextmanager
def dev(folder: Path) -> Iterator[Dev]:
    """Run `aijobs dev` on data of its own while the block runs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIJOBS_DATABASE")}
    environment = inherited | {"AIJOBS_DATA_DIR": str(folder / "data"), "PYTHONUNBUFFERED": "1"}
    if os.environ.get("PGBIN"):
        environment["AIJOBS_PGBIN"] = os.environ["PGBIN"]
    path = folder / "dev.log"
    with path.open("wb") as log:
        command = [sys.executable, "-m", "aijobs", "dev", "--port", str(free_port())]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    running = Dev(process, path)
    try:
        running.wait_until_ready()
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
