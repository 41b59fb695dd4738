"""A client that shows exactly what arrived: the simulator is measured with nothing of the project in between."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_DEADLINE_SECONDS = 10.0


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of each event; [DONE] and what is not JSON as text."""
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n\n") if line]
        return [_parsed(line) for line in lines]

    @property
    def text(self) -> str:
        """What the deltas of a stream say together."""
        chunks = [event for event in self.events if isinstance(event, dict) and event.get("choices")]
        return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def chat_body(prompt: str = "hello there", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], **more}


def connect(url: str, timeout: float = _DEADLINE_SECONDS) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)


def post(url: str, body: dict[str, Any] | bytes, **headers: str) -> Reply:
    """One POST on a connection of its own. Header names are written with _ for -."""
    connection = connect(url)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", "/v1/chat/completions", data, named)
        response = connection.getresponse()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def ask(url: str, prompt: str, **more: Any) -> Reply:
    return post(url, chat_body(prompt, **more))


def get(url: str, path: str, method: str = "GET") -> Any:
    connection = connect(url)
    try:
        connection.request(method, path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def send_raw(url: str, body: dict[str, Any]) -> socket.socket:
    """A socket on which a whole POST was sent and nothing was read."""
    parts = urlsplit(url)
    sock = socket.create_connection((parts.hostname, parts.port), timeout=_DEADLINE_SECONDS)
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall(head.encode() + data)
    return sock


def read_all(sock: socket.socket) -> bytes:
    """What arrives up to the end of the connection, closed then; ConnectionResetError if it is reset."""
    received = b""
    with sock:
        while data := sock.recv(65536):
            received += data
    return received


def read_until(sock: socket.socket, what: bytes, times: int = 1) -> bytes:
    received = b""
    while received.count(what) < times:
        data = sock.recv(65536)
        assert data, f"the connection ended before {what!r}"
        received += data
    return received


def wait_for(fact: Callable[[], Any]) -> Any:
    """Wait until the fact is true, and return it."""
    give_up_at = time.monotonic() + _DEADLINE_SECONDS
    while not (value := fact()):
        assert time.monotonic() < give_up_at, "it did not come true in time"
        time.sleep(0.005)
    return value
