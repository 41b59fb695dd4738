"""How an answer is put on the wire: whole or as a stream of events, and broken off where its script says."""

from __future__ import annotations

import itertools

from aijobs.simulator import errors
from aijobs.simulator.answers import Answer, encode, event
from aijobs.simulator.directives import Script
from aijobs.simulator.records import Record
from aijobs.simulator.wire import Connection, Ended, Head, head_bytes

# The first byte of every character that UTF-8 writes in four, emojis among them.
_FOUR_BYTE_START = range(0xF0, 0xF5)
# Long enough that two halves arrive as two reads, short enough for any test.
_SPLIT_SECONDS = 0.02
# Deltas without a delay are sent together, up to about this much at once: a load test has better uses for its time.
_FLUSH_BYTES = 16_384
_BROKEN_JSON = b'{"id":"chatcmpl-sim","choices":[{"index":0,'

_numbers = itertools.count(1)


def standard_headers() -> dict[str, str]:
    """What every answer carries; the server's name is no provider's."""
    return {
        "content-type": "application/json",
        "server": "aijobs-simulator",
        "x-request-id": f"req-sim-{next(_numbers)}",
    }


class Reply:
    """The answer to one request, written by one call of one method, which raises Ended if the connection ends first.

    `keep_alive` is true as long as the connection can carry another request after this answer.
    """

    def __init__(self, connection: Connection, head: Head, record: Record | None = None) -> None:
        self.keep_alive = head.keep_alive
        self._connection = connection
        self._chunked = head.version == "HTTP/1.1"
        self._record = record
        self._head = b""
        self._pending = b""
        self._pending_deltas = 0

    async def whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """A status with a body of known length."""
        if self._record is not None:
            self._record.status = status
        length = {} if status in (204, 304) else {"content-length": str(len(body))}
        head = head_bytes(status, standard_headers() | headers | length | self._connection_header())
        await self._connection.send(head + (body if length else b""))

    async def completion(self, answer: Answer, script: Script) -> bool:
        """An answer in one piece, after the time that its deltas take. Returns whether it was whole."""
        count = len(answer.deltas)
        after, how = script.breaks or (count, "")
        await self._connection.pause(min(after, count) * script.delta_ms / 1000)
        if how == "error":
            row = errors.by_status(500, script.error)
            await self.whole(row.status, {}, encode(row.body()))
            return False
        body = _BROKEN_JSON if script.malformed else encode(answer.completion(script))
        self._begin(script, length=len(body))
        if how:
            # One part more than there are deltas, so that a cut after the last one still cuts.
            self._pending += body[: len(body) * min(after, count) // (count + 1)]
            await self._break_off(how)
        await self._write_split(body, script.split_emoji)
        self._pending_deltas = count
        await self._flush()
        return script.malformed is None

    async def stream(self, answer: Answer, script: Script) -> bool:
        """An answer as server-sent events. Returns whether it was whole."""
        count = len(answer.deltas)
        after, how = script.breaks or (count, "")
        self._begin(script, length=None)
        await self._write(event(answer.opening()))
        if script.malformed:
            await self._write(b"data: " + _BROKEN_JSON + b"\n\n")
        for text in answer.deltas[:after]:
            if script.delta_ms:
                await self._flush()
                await self._connection.pause(script.delta_ms / 1000)
            await self._write_split(event(answer.delta(text)), script.split_emoji)
            self._pending_deltas += 1
        if how == "error":
            await self._write(event(errors.by_status(500, script.error).body()))
        elif how:
            await self._break_off(how)
        else:
            for chunk in answer.ending(script):
                await self._write(event(chunk))
            if script.done:
                await self._write(b"data: [DONE]\n\n")
        await self._end_of_stream()
        return not how and script.done and script.malformed is None

    def _begin(self, script: Script, length: int | None) -> None:
        """The headers of an answer, sent with its first bytes: chunked where no length is known, or up to the close."""
        assert self._record is not None
        self._record.status = 200
        headers = standard_headers()
        self._chunked = self._chunked and length is None and script.framing == "chunked"
        if length is None:
            headers["content-type"] = "text/event-stream; charset=utf-8"
        if self._chunked:
            headers["transfer-encoding"] = "chunked"
        elif length is not None and script.framing == "chunked":
            headers["content-length"] = str(length)
        else:
            self.keep_alive = False
        self._head = head_bytes(200, headers | self._connection_header())

    def _connection_header(self) -> dict[str, str]:
        return {"connection": "keep-alive" if self.keep_alive else "close"}

    async def _write(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) >= _FLUSH_BYTES:
            await self._flush()

    async def _write_split(self, data: bytes, split: bool) -> None:
        """Write; if `split`, with a pause in the middle of the first character of four bytes."""
        start = next((place for place, byte in enumerate(data) if byte in _FOUR_BYTE_START), None) if split else None
        if start is None:
            await self._write(data)
            return
        self._pending += data[: start + 2]
        await self._flush()
        await self._connection.pause(_SPLIT_SECONDS)
        await self._write(data[start + 2 :])

    async def _flush(self, tail: bytes = b"") -> None:
        framed = self._pending
        if self._chunked and framed:
            framed = b"%x\r\n%b\r\n" % (len(framed), framed)
        head, self._head, self._pending = self._head, b"", b""
        await self._connection.send(head + framed + tail)
        assert self._record is not None
        self._record.tokens_sent += self._pending_deltas
        self._pending_deltas = 0

    async def _end_of_stream(self) -> None:
        await self._flush(tail=b"0\r\n\r\n" if self._chunked else b"")

    async def _break_off(self, how: str) -> None:
        await self._flush()
        if how == "hang":
            await self._connection.pause(None)
        if how == "reset":
            self._connection.reset()
        else:
            self._connection.close()
        raise Ended
