"""Everything on this machine, for `dev` and `demo`: database, simulator, API and workers, each its own process."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from aijobs.config import Settings, child_environment
from aijobs.domain.price_tables import ListedPrice
from aijobs.embedded import EmbeddedPostgres
from aijobs.errors import AijobsError
from aijobs.gunicorn_file import gunicorn_file
from aijobs.store.db import Database
from aijobs.store.migrate import migrate
from aijobs.store.prices import set_prices

START_SECONDS = 30.0
STOP_SECONDS = 30.0

_CONFIG = """\
[providers.simulator]
adapter = "openai-chat"
base_url = "{url}"

[kinds.chat]
provider = "simulator"
model = "simulated"
margin_percent = 20
"""
# As if it were a provider of the cheaper sort, so that jobs on this machine show what jobs cost.
_PRICE = ListedPrice(
    provider="simulator",
    model="simulated",
    input_micros=150_000,
    output_micros=600_000,
    valid_from="2026-01-01T00:00:00Z",
)


class StackError(AijobsError):
    """A part of the local stack did not start, or ended by itself."""


class Stack:
    """The local stack. Use as a context manager: leaving it stops every process."""

    def __init__(
        self,
        settings: Settings,
        *,
        port: int = 0,
        say: Callable[[str], None],
        log: IO[str] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._say = say
        self._log = log  # where the parts write; None is the terminal
        self._environment = dict(environment or {})
        self._exits = ExitStack()
        self._children: dict[str, subprocess.Popen[str]] = {}
        self.port = port or free_port()
        self.simulator_url = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Stack:
        try:
            self._start()
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    def _start(self) -> None:
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        dsn = self._settings.database_url
        if dsn is None:
            server = EmbeddedPostgres(self._settings.data_dir, pgbin=self._settings.pgbin)
            dsn = self._exits.enter_context(server).dsn
        migrate(dsn)
        self._environment |= {"AIJOBS_DATABASE_URL": dsn, "AIJOBS_AUTH": "open"}
        if not self._settings.secret_keys:
            self._environment["AIJOBS_SECRET_KEYS"] = secrets.token_urlsafe(32)
        self._say(f"database    {dsn}")
        if self._settings.config_path is None:
            self._start_simulator()
            self._set_price(dsn)
        self._spawn(
            "api",
            [sys.executable, "-m", "gunicorn", "-c", str(gunicorn_file()), "wsgi:app"],
            AIJOBS_BIND=f"127.0.0.1:{self.port}",
        )
        self._spawn("workers", [sys.executable, "-m", "aijobs", "work"])
        self._wait_for(lambda: self.get("/health/ready") is not None, "the API")
        self._say(f"API         {self.url}")
        self._say(f"workers     supervisor pid {self._children['workers'].pid}")

    def _start_simulator(self) -> None:
        child = self._spawn("simulator", [sys.executable, "-m", "aijobs", "simulator", "--port", "0"], capture=True)
        line = child.stdout.readline() if child.stdout is not None else ""
        if "listening on" not in line:
            raise StackError("the simulator did not start")
        self.simulator_url = line.split()[-1]
        with tempfile.NamedTemporaryFile("w", suffix=".toml", prefix="aijobs-", delete=False) as config:
            config.write(_CONFIG.format(url=self.simulator_url))
        self._exits.callback(Path(config.name).unlink)
        self._environment["AIJOBS_CONFIG"] = config.name
        self._say(f"simulator   {self.simulator_url}  (a stand-in for a provider; its answers are echoes)")

    def _set_price(self, dsn: str) -> None:
        db = Database(dsn, application_name="aijobs dev", max_size=1)
        try:
            set_prices(db, [_PRICE])
        finally:
            db.close()

    def _spawn(
        self, name: str, command: list[str], *, capture: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C reaches us alone, and we stop the parts in order.
        child = subprocess.Popen(
            command,
            env=child_environment(**self._environment, **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else self._log,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._children[name] = child
        self._exits.callback(self._stop, name)
        return child

    def _stop(self, name: str) -> None:
        child = self._children.pop(name)
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if child.stdout is not None:
            child.stdout.close()

    def ended(self) -> str | None:
        """The name of a part that has ended by itself, or None."""
        return next((name for name, child in self._children.items() if child.poll() is not None), None)

    def wait_until_ended(self, stopping: Callable[[], bool]) -> None:
        """Return when told to stop. Raises StackError when a part ends by itself."""
        while not stopping():
            if (name := self.ended()) is not None:
                raise StackError(f"{name} has ended by itself; its last lines above say why")
            time.sleep(0.2)

    def get(self, path: str) -> Any:
        """GET a JSON document of the API; None while it does not answer with success."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as reply:
                return json.load(reply)
        except (OSError, urllib.error.HTTPError):
            return None

    def post(self, path: str, document: Any, **headers: str) -> Any:
        """POST a JSON document to the API and return the answer's. Raises StackError for an error status."""
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps(document).encode(),
            headers={"Content-Type": "application/json"}
            | {name.replace("_", "-"): text for name, text in headers.items()},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise StackError(f"{path} answered {error.code}: {error.read().decode(errors='replace')}") from None

    def simulator(self, path: str) -> Any:
        """What the simulator has counted."""
        with urllib.request.urlopen(self.simulator_url.removesuffix("/v1") + path, timeout=5) as reply:
            return json.load(reply)

    def supervisor_pid(self) -> int:
        return self._children["workers"].pid

    def _wait_for(self, fact: Callable[[], bool], what: str) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while not fact():
            if (name := self.ended()) is not None:
                raise StackError(f"{name} did not start; its last lines above say why")
            if time.monotonic() > give_up_at:
                raise StackError(f"{what} did not start within {START_SECONDS:.0f} s")
            time.sleep(0.1)


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
