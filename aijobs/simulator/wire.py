"""One connection: HTTP/1.1 in, bytes out, and knowing at once when the peer is gone.

Half the purpose of the simulator is to break off in exact ways and to see exactly when the other side did, so this
speaks to the socket itself where http.server would stand between.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aijobs.simulator.errors import reason
from aijobs.simulator.records import now

_MOST_HEAD_BYTES = 65_536
_MOST_BODY_BYTES = 16 * 1024 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Ended(Exception):
    """Nothing more can be said on this connection."""


class BadRequest(Exception):
    """The peer does not speak the HTTP that is spoken here; `status` says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Head:
    """A request as far as its headers."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By lower-case name."""
    version: str

    @property
    def keep_alive(self) -> bool:
        return self.version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"

    @property
    def length(self) -> int:
        """Raises BadRequest."""
        if "transfer-encoding" in self.headers:
            raise BadRequest(411, "a body needs a Content-Length here.")
        written = self.headers.get("content-length", "0")
        if not (written.isascii() and written.isdigit()):
            raise BadRequest(400, "Content-Length is not a number.")
        if int(written) > _MOST_BODY_BYTES:
            raise BadRequest(413, "the body is too large.")
        return int(written)


class Connection(asyncio.Protocol):
    """Bytes of one peer. Everything that waits here ends with `Ended` as soon as the peer closes."""

    _transport: asyncio.Transport

    def __init__(
        self, serve: Callable[[Connection], Coroutine[Any, Any, None]], tasks: set[asyncio.Task[None]]
    ) -> None:
        self._serve = serve
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=_MOST_HEAD_BYTES, loop=self._loop)
        self._writable = True
        self._waiter: asyncio.Future[None] | None = None
        self.peer_closed_at: str | None = None
        self._closed_here = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._reader.set_transport(transport)
        task = self._loop.create_task(self._serve(self))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def data_received(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def eof_received(self) -> bool:
        # A peer that shuts down only its sending side looks the same. HTTP clients do not do that.
        self._peer_closed()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._peer_closed()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake()

    def _peer_closed(self) -> None:
        if self.peer_closed_at is None and not self._closed_here:
            self.peer_closed_at = now()
            self._reader.feed_eof()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What a request is read with.

    async def read_head(self) -> Head | None:
        """The next request, or None when the peer wants nothing more. Raises BadRequest."""
        try:
            raw = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            raise BadRequest(431, "the headers are too large.") from None
        return _parse_head(raw.decode("latin-1"))

    async def read_body(self, head: Head) -> bytes:
        """The whole body. Raises BadRequest, or Ended if the peer stopped in the middle."""
        length = head.length
        if head.headers.get("expect", "").lower() == "100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise Ended from None

    # What is answered with.

    async def send(self, data: bytes) -> None:
        """Hand the bytes to the kernel, waiting for a peer that reads slowly."""
        if self.peer_closed_at is not None:
            raise Ended
        self._transport.write(data)
        if self._writable:
            # Nothing else here gives way to the loop, and only the loop can find out that the peer has closed.
            await asyncio.sleep(0)
        while not self._writable:
            await self.pause(None)

    async def pause(self, seconds: float | None) -> None:
        """Wait that long, for ever if None."""
        if self.peer_closed_at is not None:
            raise Ended
        self._waiter = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        if self.peer_closed_at is not None:
            raise Ended

    def close(self) -> None:
        """An orderly end: what was sent arrives, then the end of the connection."""
        self._closed_here = True
        self._transport.close()

    def abort(self) -> None:
        """An end at once; what the kernel has not taken yet is dropped."""
        self._closed_here = True
        self._transport.abort()

    def reset(self) -> None:
        """A disorderly end: the peer gets ECONNRESET."""
        self._closed_here = True
        sock: socket.socket = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()


def _parse_head(raw: str) -> Head:
    request_line, *lines = raw.removesuffix("\r\n\r\n").split("\r\n")
    try:
        method, target, version = request_line.split(" ")
        pairs = [line.split(":", 1) for line in lines]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        parts = urlsplit(target)
    except ValueError:
        raise BadRequest(400, "this is not HTTP.") from None
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest(505, "only HTTP/1.1 is spoken here.")
    return Head(method, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)), headers, version)


def head_bytes(status: int, headers: dict[str, str]) -> bytes:
    """A status line and headers, ready to send."""
    lines = [f"HTTP/1.1 {status} {reason(status)}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
