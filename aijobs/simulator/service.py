"""The server: which path answers what, and the beginning and end of listening."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

from aijobs.simulator.answers import MODELS, encode
from aijobs.simulator.chat import Chat
from aijobs.simulator.errors import by_status
from aijobs.simulator.messages import Messages
from aijobs.simulator.options import Options
from aijobs.simulator.plain import Plain
from aijobs.simulator.records import Records
from aijobs.simulator.reply import Reply
from aijobs.simulator.responses import Responses
from aijobs.simulator.wire import BadRequest, Connection, Ended, Head

# A load test connects hundreds at once; the kernel lowers this to its own bound (net.core.somaxconn).
_BACKLOG = 4096
_COMPLETION = "/v1/chat/completions/"
_ABOUT = {"name": "aijobs simulator", "about": "A test and demo tool. No model runs here; it is not a provider."}


class Service:
    """A simulator in a running event loop."""

    def __init__(self, options: Options, records: Records) -> None:
        self._options = options
        self._records = records
        self._chat = Chat(options, records)
        self._responses = Responses(options, records)
        self._plain = Plain(options, records)
        self._messages = Messages(options, records)
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = int(time.time())

    async def listen(self) -> int:
        """Begin to listen and return the port. Raises OSError if that cannot be."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._serve, self._tasks), self._options.host, self._options.port, backlog=_BACKLOG
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and break off what is being answered."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # The connections close their sockets in the next turn of the loop.
        await asyncio.sleep(0)

    async def _serve(self, connection: Connection) -> None:
        try:
            while await self._serve_one(connection):
                pass
        except Ended:
            pass
        except asyncio.CancelledError:
            # An orderly close would wait for a peer that may never read.
            connection.abort()
            raise
        finally:
            connection.close()

    async def _serve_one(self, connection: Connection) -> bool:
        head: Head | None = None
        try:
            head = await connection.read_head()
            if head is None:
                return False
            if not head.path.startswith("/simulator"):
                self._records.request()
            body = await connection.read_body(head)
        except BadRequest as problem:
            row = by_status(problem.status)
            error = row.body()
            error["error"]["message"] = problem.message
            refused = head or Head("GET", "/", {}, {}, "HTTP/1.0")
            reply = Reply(connection, refused)
            reply.keep_alive = False
            await reply.whole(problem.status, {}, encode(error))
            return False
        if (head.method, head.path) == ("POST", "/v1/chat/completions"):
            return await self._chat.answer(connection, head, body)
        if (head.method, head.path) == ("POST", "/v1/responses"):
            return await self._responses.answer(connection, head, body)
        if (head.method, head.path) == ("POST", "/v1/plain"):
            return await self._plain.answer(connection, head, body)
        if (head.method, head.path) == ("POST", "/v1/messages"):
            return await self._messages.answer(connection, head, body)
        if head.path.startswith("/v1/responses/"):
            return await self._responses.answer_about(connection, head)
        status, document = self._page(head)
        reply = Reply(connection, head)
        await reply.whole(status, {}, encode(document) + b"\n")
        return reply.keep_alive

    def _page(self, head: Head) -> tuple[int, Any]:
        match head.method, head.path:
            case "GET", "/":
                return 200, _ABOUT
            case "GET", "/v1/models":
                return 200, {"object": "list", "data": [self._model(name) for name in MODELS]}
            case "GET", "/v1/chat/completions":
                return 200, self._chat.list_stored(head.query)
            case "GET", path if path.startswith(_COMPLETION):
                stored = self._chat.get_stored(path.removeprefix(_COMPLETION))
                return (404, by_status(404).body()) if stored is None else (200, stored)
            case "GET", "/simulator/stats":
                return 200, self._records.stats()
            case "GET", "/simulator/calls":
                return 200, self._records.calls(head.query.get("marker"))
            case "POST", "/simulator/reset":
                self._records.reset()
                return 200, self._records.stats()
            case _:
                return 404, by_status(404).body()

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "aijobs-simulator"}


def url_of(host: str, port: int) -> str:
    """The base URL to configure a provider with."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def run(options: Options, *, announce: Callable[[str], None], ends_with_stdin: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, in the main thread. `announce` is called once, with the URL, when it listens.

    Raises OSError if it cannot listen. With `ends_with_stdin` the end of standard input ends it as well.
    """
    asyncio.run(_run(options, announce, ends_with_stdin))


async def _run(options: Options, announce: Callable[[str], None], ends_with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if ends_with_stdin:
        loop.add_reader(0, stop.set)
    service = Service(options, Records())
    announce(url_of(options.host, await service.listen()))
    await stop.wait()
    await service.close()
