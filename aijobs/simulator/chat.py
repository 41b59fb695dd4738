"""One POST to /v1/chat/completions, from its body to the end of its answer, whatever end its script asks for."""

from __future__ import annotations

import hashlib
import itertools
import random
import time
from typing import Any

from aijobs.simulator import directives, errors
from aijobs.simulator.answers import InvalidRequest, Prompt, compose, encode, read_prompt
from aijobs.simulator.directives import DirectiveError, Script
from aijobs.simulator.options import Options
from aijobs.simulator.records import Record, Records
from aijobs.simulator.reply import Reply
from aijobs.simulator.wire import Connection, Ended, Head

_LONGEST_REQUEST_ID = 512

# What a server with a fault rate draws from: one of each way to go wrong that a client has to tell apart.
_RANDOM_FAULTS: tuple[dict[str, Any], ...] = (
    {"status": 429, "retry_after": "1"},
    {"status": 503},
    {"status": 500},
    {"status": 502},
    {"close": "headers"},
    {"reset": "headers"},
    {"cut_after": 1},
    {"reset_after": 1},
    {"error_after": 1},
    {"done": False},
)


class Chat:
    """What all chat completions of one server share."""

    def __init__(self, options: Options, records: Records) -> None:
        self._records = records
        self._fault_rate = options.fault_rate
        self._dice = random.Random(options.seed)
        self._numbers = itertools.count(1)
        self._defaults: dict[str, Any] = {"delta_ms": options.delta_ms, "first_byte_ms": options.first_byte_ms}
        if options.tokens is not None:
            self._defaults["tokens"] = options.tokens

    async def answer(self, connection: Connection, head: Head, body: bytes) -> bool:
        """Answer a complete POST. Returns whether the connection may be used again; raises Ended if it is gone."""
        request_id = head.headers.get("x-client-request-id")
        record = self._records.post(request_id and request_id[:_LONGEST_REQUEST_ID])
        reply = Reply(connection, head, record)
        completed = False
        try:
            completed = await self._answer(connection, head, body, record, reply)
        finally:
            peer_closed_at = None if completed else connection.peer_closed_at
            self._records.finish(record, completed=completed, peer_closed_at=peer_closed_at)
        return reply.keep_alive

    async def _answer(self, connection: Connection, head: Head, body: bytes, record: Record, reply: Reply) -> bool:
        try:
            prompt = read_prompt(body)
            script = self._script(prompt, head.headers.get("x-simulator", ""))
        except (InvalidRequest, DirectiveError) as problem:
            self._records.decide(record, generation=False)
            code = "simulator_directive" if isinstance(problem, DirectiveError) else None
            answer = errors.ErrorAnswer(400, "invalid_request_error", code, str(problem))
            await reply.whole(400, {}, encode(answer.body()))
            return False
        record.marker = script.marker or record.client_request_id
        record.stream = prompt.stream
        self._records.decide(record, generation=_paid(script))
        await connection.pause(script.first_byte_ms / 1000)
        await _break_off_unanswered(connection, script)
        if _refuses(script):
            await _refuse(reply, script)
            return False
        number = next(self._numbers)
        answered = compose(prompt, script, reply_id=f"chatcmpl-sim-{number}", created=int(time.time()))
        return await (reply.stream if prompt.stream else reply.completion)(answered, script)

    def _script(self, prompt: Prompt, header: str) -> Script:
        asked = directives.in_prompt(prompt.last_user_text) | directives.parse(header)
        if not directives.has_fault(asked) and self._fault_rate and self._dice.random() < self._fault_rate:
            asked |= self._dice.choice(_RANDOM_FAULTS)
        if "times" in asked and self._records.turn(_turn_key(asked, prompt, header)) >= asked["times"]:
            asked = directives.without_faults(asked)
        return Script(**(self._defaults | asked))


def _turn_key(asked: dict[str, Any], prompt: Prompt, header: str) -> object:
    """By what a repeated request is known: its marker, or else a hash of what it says, since prompts are not kept."""
    if "marker" in asked:
        return asked["marker"]
    said = f"{header}\0{prompt.last_user_text}".encode(errors="surrogatepass")
    return hashlib.sha256(said).digest()


def _refuses(script: Script) -> bool:
    return script.status not in (None, 200) or (script.error is not None and script.error_after is None)


def _status(script: Script) -> int:
    if script.status is not None:
        return script.status
    return errors.by_status(500, script.error).status


def _paid(script: Script) -> bool:
    if script.paid is not None:
        return script.paid
    unanswered = script.hang or script.close or script.reset or script.malformed in ("status", "headers")
    return bool(unanswered) or not _refuses(script) or errors.may_have_worked(_status(script))


async def _break_off_unanswered(connection: Connection, script: Script) -> None:
    """The ends that come before a status that could be believed."""
    if script.hang:
        await connection.pause(None)
    if script.malformed == "status":
        await connection.send(b"HTTP/9.9 what is this\r\n\r\n")
    if script.malformed == "headers":
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-str")
    if script.reset:
        connection.reset()
        raise Ended
    if script.close or script.malformed in ("status", "headers"):
        connection.close()
        raise Ended


async def _refuse(reply: Reply, script: Script) -> None:
    status = _status(script)
    named = {
        "retry-after": script.retry_after,
        "retry-after-ms": script.retry_after_ms,
        "x-should-retry": script.should_retry,
        "location": "/elsewhere" if 300 <= status < 400 else None,
    }
    headers = {name: value for name, value in named.items() if value is not None}
    if script.error is None and errors.is_html(status):
        await reply.whole(status, headers | {"content-type": "text/html"}, errors.html(status))
    else:
        await reply.whole(status, headers, encode(errors.by_status(status, script.error).body()))
