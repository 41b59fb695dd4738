"""A receiver of webhooks that answers as a test wants it to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook


@dataclass
class Received:
    """One request, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> Any:
        """What it says, if the secret has signed it. Raises what the library raises."""
        return Webhook(secret).verify(self.body, self.headers)


Answer = Callable[[Received, int], int | tuple[int, dict[str, str]] | None]


class Receiver:
    """`answer` is given the request and how many came to its path before it; None hangs up without an answer."""

    def __init__(self, answer: Answer) -> None:
        self.received: list[Received] = []
        self._answer = answer
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                one = Received(self.path, headers, body)
                before = len(receiver.at(self.path))
                receiver.received.append(one)
                said = receiver._answer(one, before)
                if said is None:
                    self.close_connection = True
                    return
                status, more = said if isinstance(said, tuple) else (said, {})
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                """Not a word."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def at(self, path: str) -> list[Received]:
        return [one for one in self.received if one.path == path]

    def serve(self) -> None:
        self._server.serve_forever(0.05)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiver(answer: Answer = lambda _, __: 204) -> Iterator[Receiver]:
    made = Receiver(answer)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join()
