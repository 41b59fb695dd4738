"""An API full of faults: one job with its events, behind a server that breaks off, refuses and repeats as told."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB_ID = "0193a000-0000-7000-8000-000000000001"
CREATED_AT = "2026-12-01T12:00:00.000000Z"


def job_document(status: str = "queued", **given: Any) -> dict[str, Any]:
    return {
        "job_id": JOB_ID,
        "status": status,
        "kind": "chat",
        "attempts": 1,
        "result": None,
        "error": None,
        "created_at": CREATED_AT,
        "finished_at": None,
        **given,
    }


def event(seq: int, type_: str, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "job_id": JOB_ID, "type": type_, "created_at": CREATED_AT, **data}


def in_order(*types: str | tuple[str, str]) -> list[dict[str, Any]]:
    """Events numbered from 1; a pair is a delta and its text."""
    made = []
    for seq, type_ in enumerate(types, 1):
        made.append(event(seq, type_) if isinstance(type_, str) else event(seq, "job.output.delta", text=type_[1]))
    return made


def on_the_wire(sent: Mapping[str, Any]) -> bytes:
    return f"id: {sent['seq']}\nevent: {sent['type']}\ndata: {json.dumps(sent, ensure_ascii=False)}\n\n".encode()


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def after(self) -> int:
        return int(self.headers.get("Last-Event-ID", "0"))


class Reply:
    """What one request is answered with, by hand."""

    def __init__(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        self._handler = handler
        self.asked = asked
        self.connection: socket.socket = handler.connection

    def document(self, document: Any, status: int = 200, **headers: str) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        self.raw(status, json.dumps(document).encode(), Content_Type=kind, **headers)

    def problem(self, status: int, code: str, **headers: str) -> None:
        retryable = status in (429, 503)
        problem = {"status": status, "code": code, "title": "No", "detail": "", "retryable": retryable}
        self.document(problem | {"request_id": "r-1"}, status, **headers)

    def raw(self, status: int, body: bytes, **headers: str) -> None:
        self._handler.send_response(status)
        for name, text in headers.items():
            self._handler.send_header(name.replace("_", "-"), text)
        if status not in (204, 304):
            self._handler.send_header("Content-Length", str(len(body)))
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def begin_stream(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "text/event-stream")
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()

    def chunk(self, piece: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self._handler.wfile.flush()

    def end_stream(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection, in whatever state it is."""
        self._handler.close_connection = True
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._handler.close_connection = True
        self._handler.connection.close()


Behaviour = Callable[[Reply], None]


class FaultServer:
    """Answers each request with the next behaviour of the plan, and with `then` when that is used up."""

    def __init__(self, plan: list[Behaviour], then: Behaviour) -> None:
        self.plan = plan
        self.then = then
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        asked = Asked(handler.command, handler.path, dict(handler.headers), body)
        with self._lock:
            self.asked.append(asked)
            behave = self.plan.pop(0) if self.plan else self.then
        behave(Reply(handler, asked))


@contextmanager
def faults(*plan: Behaviour, then: Behaviour) -> Iterator[FaultServer]:
    faulty = FaultServer(list(plan), then)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            try:
                faulty.answer(self)
            except OSError:
                self.close_connection = True  # the client has gone, as some tests want it to

        do_POST = do_GET

        def log_message(self, *arguments: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def shutdown_request(self, request: Any) -> None:
            try:
                super().shutdown_request(request)
            except OSError:
                return  # it was reset

        def handle_error(self, *arguments: Any) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    faulty.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield faulty
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def unavailable(retry_after: str | None = None) -> Behaviour:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return lambda reply: reply.problem(503, "unavailable", **headers)


def limited(retry_after: str) -> Behaviour:
    return lambda reply: reply.problem(429, "rate_limited", Retry_After=retry_after)


def document(body: Any, status: int = 200, **headers: str) -> Behaviour:
    return lambda reply: reply.document(body, status, **headers)


def cut(reply: Reply) -> None:
    reply.cut()


def reset(reply: Reply) -> None:
    reply.reset()


def half_an_answer(reply: Reply) -> None:
    reply._handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    reply.cut()


class Events:
    """The events of one job, as a correct server would send them, with faults to choose."""

    def __init__(self, events: list[dict[str, Any]], *, trimmed: int = 0, job: Any = None) -> None:
        self.events = events
        self.trimmed = trimmed
        self.job = job

    def well(self, reply: Reply) -> None:
        """All that is after what the client has, to the end."""
        left = self._left(reply)
        if not left:
            return reply.raw(204, b"")
        reply.begin_stream()
        for piece in left:
            reply.chunk(piece)
        return reply.end_stream()

    def broken_after(self, count: int, how: Callable[[Reply], None] = cut, *, part: int = 0) -> Behaviour:
        """`count` events, `part` bytes of the next, and then the end."""

        def behave(reply: Reply) -> None:
            left = self._left(reply)
            reply.begin_stream()
            for piece in left[:count]:
                reply.chunk(piece)
            if part and len(left) > count:
                reply.chunk(left[count][:part])
            how(reply)

        return behave

    def with_duplicates(self, reply: Reply) -> None:
        """What a server that forgets Last-Event-ID sends: everything from the first."""
        reply.begin_stream()
        for sent in self.events:
            reply.chunk(on_the_wire(sent))
        reply.end_stream()

    def with_gap(self, reply: Reply) -> None:
        """Without the one that would be next."""
        reply.begin_stream()
        for piece in self._left(reply)[1:]:
            reply.chunk(piece)
        reply.end_stream()

    def in_bytes(self, reply: Reply) -> None:
        """With comments, in pieces of three bytes, with CRLF, after a byte order mark."""
        reply.begin_stream()
        text = b"\xef\xbb\xbf: hello\n\n" + b": more\n\n".join(self._left(reply))
        text = text.replace(b"\n", b"\r\n")
        for at in range(0, len(text), 3):
            reply.chunk(text[at : at + 3])
        reply.end_stream()

    def _left(self, reply: Reply) -> list[bytes]:
        after = reply.asked.after
        left = []
        if after < self.trimmed:
            left.append(f"id: {self.trimmed}\nevent: snapshot\ndata: {json.dumps(self.job)}\n\n".encode())
            after = self.trimmed
        return left + [on_the_wire(sent) for sent in self.events if sent["seq"] > after]
