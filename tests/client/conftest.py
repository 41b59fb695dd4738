"""The API as it is run, and a network in front of it that loses answers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import pytest

from aijobs.store import tenants
from aijobs.store.db import Database
from tests.api.conftest import environment_for
from tests.api.server import Server, served
from tests.workers.fleet import Fleet, audit, fleet_on

PRICED_KIND = """
[kinds.report]
handler = "tests.workers.handlers:noop"
price_micros = 1000
"""


class Api:
    """gunicorn on one port, in front of a fleet, that can be killed and started again."""

    def __init__(self, fleet: Fleet, folder: Path, key: str, exits: contextlib.ExitStack) -> None:
        self._fleet = fleet
        self._folder = folder
        self._exits = exits
        self.key = key
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.server: Server | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = environment_for(self._fleet.dsn, self._fleet.config)
        running = served(self._folder, self.key, "-b", f"127.0.0.1:{self.port}", **environment)
        self.server = self._exits.enter_context(running)

    def kill(self) -> None:
        """kill -9 for all of its processes at once."""
        assert self.server is not None
        pids = [self.server.process.pid, *self.server.workers()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.server.process.wait(10)


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_on(database_url, tmp_path, PRICED_KIND) as made:
        yield made
        audit(made)


@pytest.fixture
def api(fleet: Fleet, db: Database, tmp_path: Path) -> Iterator[Api]:
    with contextlib.ExitStack() as exits:
        yield Api(fleet, tmp_path, tenants.create_key(db, fleet.tenant), exits)


class LosesAnswers:
    """Forwards connections, until the first byte of an answer: then it calls the next of `instead`, while there
    is one, and closes. After that it forwards everything."""

    def __init__(self, port: int, *instead: Callable[[], None]) -> None:
        self._port = port
        self._instead = list(instead)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost: list[bytes] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> LosesAnswers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as server:
                back = threading.Thread(target=_pump, args=(client, server), daemon=True)
                back.start()
                while piece := server.recv(65_536):
                    if self._instead:
                        self.lost.append(piece)
                        self._instead.pop(0)()
                        break
                    client.sendall(piece)
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        # Who asked has gone: the server need not keep the connection for more.
        target.shutdown(socket.SHUT_RDWR)
