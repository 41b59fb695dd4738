"""A network that can fail: a relay in front of PostgreSQL that forwards, falls silent, cuts or refuses.

Silence is what a dead network behind a proxy looks like: the connection stays open, its other side goes on
acknowledging, and no reply ever comes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict, make_conninfo


@dataclass(eq=False)
class _Link:
    client: socket.socket
    server: socket.socket
    opening: bytes = b""  # what the client said first: it names the application
    silent: threading.Event = field(default_factory=threading.Event)


class Relay:
    """Forwards TCP connections to the server of `dsn`, which may be on a unix socket. `dsn` leads through the relay.

    Use as a context manager: leaving it closes everything.
    """

    def __init__(self, dsn: str) -> None:
        given = conninfo_to_dict(dsn)
        self._host, self._port = str(given.get("host") or "127.0.0.1"), int(given.get("port") or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=self._listener.getsockname()[1])
        self._links: list[_Link] = []
        self._blackhole = self._refusing = False
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def forward(self) -> None:
        """Serve new connections from now on. Those that were silenced stay silent."""
        self._blackhole = self._refusing = False

    def swallow(self, application: str) -> int:
        """Let nothing through any more on the connections that are open now under this application name; how many."""
        chosen = [link for link in self._links if application.encode() in link.opening and not link.silent.is_set()]
        for link in chosen:
            link.silent.set()
        return len(chosen)

    def blackhole(self) -> None:
        """Let nothing through any more, on any connection; new ones are accepted and hear nothing."""
        self._blackhole = True
        for link in self._links:
            link.silent.set()

    def cut(self) -> None:
        """Close every connection that is open now."""
        links, self._links = self._links, []
        for link in links:
            _end(link.client)
            _end(link.server)

    def refuse(self) -> None:
        """Close every connection, and new ones as soon as they are made."""
        self._refusing = True
        self.cut()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._refusing = True
        _end(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:  # the server is down: so is the relay, for this connection
                client.close()
                continue
            link = _Link(client, server)
            if self._blackhole:
                link.silent.set()
            self._links.append(link)
            if self._refusing:
                self.cut()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(link, source, target), name="relay", daemon=True).start()

    def _connect(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        except OSError:
            server.close()
            raise
        return server


def _pump(link: _Link, source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if source is link.client and len(link.opening) < 4096:
                link.opening += data
            if not link.silent.is_set():
                target.sendall(data)
    if not link.silent.is_set():
        _end(target)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
