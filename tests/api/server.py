"""The API as it is run: gunicorn processes on a free port."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from aijobs.gunicorn_file import gunicorn_file

ROOT = Path(__file__).parents[2]
START_SECONDS = 20.0
_LISTENING = re.compile(r"Listening at: http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """A running gunicorn."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, key: str) -> None:
        self.process = process
        self._log = log
        self.key = key
        self.port = 0

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def workers(self) -> list[int]:
        pid = self.process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def request(self, method: str, path: str, body: Any = None, timeout: float = 30, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        merged = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            merged["Content-Type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body)
        merged |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, merged)
            answered = connection.getresponse()
            return Answer(answered.status, dict(answered.getheaders()), answered.read())
        finally:
            connection.close()

    def create(self, key: str, document: Any, **given: Any) -> Answer:
        return self.request("POST", "/api/ai/jobs", document, Idempotency_Key=key, **given)

    def connect(self, timeout: float = 30.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def seconds_to_live(self) -> float:
        """How long /health/live takes to answer."""
        started = time.monotonic()
        assert self.request("GET", "/health/live").status == 200
        return time.monotonic() - started

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        finally:
            if self.process.poll() is None:
                for pid in self.workers():
                    os.kill(pid, signal.SIGKILL)
                self.process.kill()
                self.process.wait()


def launch(log: IO[bytes], *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start gunicorn as the documentation says, on a port of the kernel's choice unless told otherwise."""
    given = arguments if "-b" in arguments else ("-b", "127.0.0.1:0", *arguments)
    return subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-c", str(gunicorn_file()), *given, "wsgi:app"],
        cwd=ROOT,
        env={**os.environ, "AIJOBS_LOG": "text", **environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )


@contextmanager
def served(folder: Path, key: str, *arguments: str, **environment: str) -> Iterator[Server]:
    """Run the API while the block runs. `key` is what its requests carry."""
    path = folder / f"gunicorn-{time.monotonic_ns()}.log"
    with path.open("wb") as log:
        server = Server(launch(log, *arguments, **environment), path, key)
    try:
        wait_for(lambda: bool(_LISTENING.search(server.log())) or server.process.poll() is not None, "gunicorn")
        found = _LISTENING.search(server.log())
        assert found, server.log()
        server.port = int(found[1])
        assert server.request("GET", "/health/live", timeout=START_SECONDS).status == 200
        yield server
    finally:
        server.stop()


def wait_for(fact: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Return when something has become true. Raises TimeoutError naming it."""
    give_up_at = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


def read_answer(connection: socket.socket) -> Answer:
    """Read one answer from a connection on which a request was written by hand."""
    answered = http.client.HTTPResponse(connection)
    answered.begin()
    return Answer(answered.status, dict(answered.getheaders()), answered.read())


def is_closed(connection: socket.socket) -> bool:
    """Whether the server hangs up within the connection's timeout."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True
