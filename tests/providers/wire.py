"""Servers that misbehave on purpose: raw sockets and a script for each connection, plain or with TLS, and a proxy."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Made for these tests alone, valid for `localhost` from 2020 to 2056.
CERTIFICATE = Path(__file__).with_name("localhost.pem")
# Longer than any test takes: what waits for so long is broken.
PATIENCE = 30.0


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket, server: Server) -> None:
        self.connection = connection
        self._server = server

    def head(self) -> tuple[str, dict[str, str], bytes]:
        """Read a request's line and headers; with them comes what of the body was read along."""
        read = b""
        while b"\r\n\r\n" not in read:
            piece = self.connection.recv(65536)
            if not piece:
                raise ConnectionError("no request")
            read += piece
        head, _, rest = read.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)}
        return line, headers, rest

    def request(self) -> Request:
        """Read a whole request, and count it."""
        line, headers, rest = self.head()
        body = bytearray(rest)
        while len(body) < int(headers.get("content-length", "0")):
            piece = self.connection.recv(65536)
            if not piece:
                raise ConnectionError("half a request")
            body += piece
        request = Request(line, headers, bytes(body))
        self._server.requests.append(request)
        self._server.reached.set()
        return request

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.sendall(piece)

    def drip(self, pieces: bytes) -> None:
        """One byte at a time, for as long as the other side takes them."""
        for at in range(len(pieces)):
            self.connection.sendall(pieces[at : at + 1])
            if self._server.stopping.wait(0.02):
                return

    def hang(self) -> None:
        """Keep silent until the other side closes; what it sends is read and thrown away."""
        self._server.reached.set()
        with contextlib.suppress(OSError):
            while self.connection.recv(65536):
                pass

    def ignore(self) -> None:
        """Do not even read."""
        self._server.reached.set()
        self._server.stopping.wait(PATIENCE)

    def reset(self) -> None:
        """RST instead of FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if isinstance(self.connection, ssl.SSLSocket):
            socket.socket(fileno=self.connection.detach()).close()
        else:
            self.connection.close()


Script = Callable[[Peer], None]


class Server:
    """Runs `script` for each connection. `requests` are those that came whole; `reached` is set when a script waits."""

    def __init__(self, script: Script, *, tls: bool = False, small_buffers: bool = False) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self.reached = threading.Event()
        self.stopping = threading.Event()
        self._tls: ssl.SSLContext | None = None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(CERTIFICATE)
        self._listener = socket.socket()
        if small_buffers:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self.port = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="test-accept", daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/v1" if self._tls else f"http://127.0.0.1:{self.port}/v1"

    @property
    def posts(self) -> int:
        """How many POSTs were received completely."""
        return sum(request.line.startswith("POST ") for request in self.requests)

    def stop(self) -> None:
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), name="test-peer", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        current = connection
        try:
            if self._tls is not None:
                current = self._tls.wrap_socket(connection, server_side=True)
                self._open.add(current)
            self.script(Peer(current, self))
        except OSError:
            pass  # the client went away, which is what many tests are about
        finally:
            self._open -= {connection, current}
            current.close()
            connection.close()


class Listening:
    """A script that only notes what comes first: nothing, if the client closes without a byte."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __call__(self, peer: Peer) -> None:
        self._heard.put(peer.connection.recv(1000))

    def heard(self) -> bytes:
        return self._heard.get(timeout=PATIENCE)


class Proxy(Server):
    """Passes on what it gets, by CONNECT or with an absolute URL; `connect_reply` is its answer to CONNECT."""

    def __init__(self, connect_reply: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> None:
        self.connect_reply = connect_reply
        self.lines: list[str] = []
        super().__init__(self._pass_on)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _pass_on(self, peer: Peer) -> None:
        line, headers, rest = peer.head()
        self.lines.append(line)
        method, target, _ = line.split(" ")
        if method == "CONNECT":
            peer.send(self.connect_reply)
            if b" 200 " not in self.connect_reply:
                return
            host, _, port = target.rpartition(":")
            first = rest
        else:
            host, _, path = target.removeprefix("http://").partition("/")
            host, _, port = host.rpartition(":")
            fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            first = f"{method} /{path} HTTP/1.1\r\n{fields}\r\n".encode("latin-1") + rest
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as upstream:
            self._open.add(upstream)
            upstream.sendall(first)
            back = threading.Thread(target=_pump, args=(upstream, peer.connection), name="test-pump", daemon=True)
            back.start()
            _pump(peer.connection, upstream)
            back.join(PATIENCE)
            self._open.discard(upstream)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until the source ends, then end the sink in the same way: a reset is passed on as a reset."""
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (sink, source):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)


def response(status: int | str, body: bytes = b"", *headers: str) -> bytes:
    """A whole response with a length."""
    fields = "".join(f"{field}\r\n" for field in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status} Words\r\n{fields}\r\n".encode() + body


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """A body in chunks."""
    framed = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return framed + (b"0\r\n\r\n" if end else b"")


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nx-request-id: req-7\r\n"
CHUNKED_HEAD = STREAM_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
OPEN_HEAD = STREAM_HEAD + b"\r\n"
