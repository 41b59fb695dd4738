"""POSTs that make a model work, from their body to the end of their answer, whatever end their script asks for; and
chat completions, which may be stored.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aijobs.simulator import directives, errors
from aijobs.simulator.answers import Answer, InvalidRequest, Prompt, compose, encode, read_prompt
from aijobs.simulator.directives import DirectiveError, Script
from aijobs.simulator.options import Options
from aijobs.simulator.records import Kept, Record, Records
from aijobs.simulator.reply import Reply
from aijobs.simulator.wire import Connection, Ended, Head

_Work = TypeVar("_Work")
_LONGEST_REQUEST_ID = 512
_METADATA = re.compile(r"metadata\[(.+)\]")
_USUAL_LIMIT = 20

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


class Posts(Generic[_Work]):
    """What all endpoints share whose POSTs make a model work: scripts, faults and counting."""

    reply_type: type[Reply] = Reply

    def __init__(self, options: Options, records: Records) -> None:
        self._records = records
        self._fault_rate = options.fault_rate
        self._dice = random.Random(options.seed)
        self._defaults: dict[str, Any] = {"delta_ms": options.delta_ms, "first_byte_ms": options.first_byte_ms}
        if options.tokens is not None:
            self._defaults["tokens"] = options.tokens

    def read(self, body: bytes) -> Prompt:
        """Raises InvalidRequest."""
        raise NotImplementedError

    def begin(self, body: bytes, prompt: Prompt, script: Script) -> _Work:
        """Begin the work of a request that is not refused. What goes on without its client goes on from here."""
        raise NotImplementedError

    async def write(self, reply: Reply, prompt: Prompt, work: _Work, script: Script) -> bool:
        """Answer with the work. Returns whether the answer was whole; raises Ended if the connection ends first."""
        raise NotImplementedError

    def worked(self, script: Script, *, refused: bool) -> bool:
        """Whether the request counts as paid."""
        return _paid(script)

    async def answer(self, connection: Connection, head: Head, body: bytes) -> bool:
        """Answer a complete POST. Returns whether the connection may be used again; raises Ended if it is gone."""
        request_id = head.headers.get("x-client-request-id")
        record = self._records.post(request_id and request_id[:_LONGEST_REQUEST_ID])
        reply = self.reply_type(connection, head, record)
        completed = False
        try:
            completed = await self._answer(connection, head, body, record, reply)
        finally:
            peer_closed_at = None if completed else connection.peer_closed_at
            self._records.finish(record, completed=completed, peer_closed_at=peer_closed_at)
        return reply.keep_alive

    async def _answer(self, connection: Connection, head: Head, body: bytes, record: Record, reply: Reply) -> bool:
        try:
            prompt = self.read(body)
            script = self._script(prompt, head.headers.get("x-simulator", ""))
        except (InvalidRequest, DirectiveError) as problem:
            self._records.decide(record, generation=False)
            code = "simulator_directive" if isinstance(problem, DirectiveError) else None
            answer = errors.ErrorAnswer(400, "invalid_request_error", code, str(problem))
            await reply.whole(400, {}, encode(answer.body()))
            return False
        record.marker = script.marker or record.client_request_id
        record.stream = prompt.stream
        self._records.decide(record, generation=self.worked(script, refused=_refuses(script)))
        work = None if _refuses(script) else self.begin(body, prompt, script)
        await connection.pause(script.first_byte_ms / 1000)
        await _break_off_unanswered(connection, script)
        if work is None:
            await _refuse(reply, script)
            return False
        return await self.write(reply, prompt, work, script)

    def _script(self, prompt: Prompt, header: str) -> Script:
        asked = directives.in_prompt(prompt.last_user_text) | directives.parse(header)
        if not directives.has_fault(asked) and self._fault_rate and self._dice.random() < self._fault_rate:
            asked |= self._dice.choice(_RANDOM_FAULTS)
        if "times" in asked and self._records.turn(_turn_key(asked, prompt, header)) >= asked["times"]:
            asked = directives.without_faults(asked)
        return Script(**(self._defaults | asked))


@dataclass(frozen=True)
class _Stored:
    """A completion that was asked for with `store`, which goes on to its end whatever becomes of its client."""

    completion: dict[str, Any]
    metadata: dict[str, Any]
    ends_at: float


class Chat(Posts[Answer]):
    """What all chat completions of one server share."""

    def __init__(self, options: Options, records: Records) -> None:
        super().__init__(options, records)
        self._numbers = itertools.count(1)
        self._stored: Kept[_Stored] = Kept()

    def read(self, body: bytes) -> Prompt:
        return read_prompt(body)

    def begin(self, body: bytes, prompt: Prompt, script: Script) -> Answer:
        name = f"chatcmpl-sim-{next(self._numbers)}"
        answer = compose(prompt, script, reply_id=name, created=int(time.time()))
        # Only a body that names it is parsed a second time: a load test sends many that do not.
        asked = json.loads(body) if b'"store"' in body else {}
        if asked.get("store") is True and (script.breaks or (0, ""))[1] != "error":
            metadata = asked.get("metadata")
            seconds = (script.first_byte_ms + len(answer.deltas) * script.delta_ms) / 1000
            completion = answer.completion(script)
            if isinstance(metadata, dict):
                completion["metadata"] = metadata
            self._stored.put(name, _Stored(completion, completion.get("metadata", {}), time.monotonic() + seconds))
        return answer

    async def write(self, reply: Reply, prompt: Prompt, work: Answer, script: Script) -> bool:
        return await (reply.stream if prompt.stream else reply.completion)(work, script)

    def list_stored(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The completions with all the metadata that is asked for, oldest first unless asked for otherwise."""
        wanted = {match[1]: value for name, value in query.items() if (match := _METADATA.fullmatch(name))}
        found = [each.completion for each in self._ended() if each.metadata.items() >= wanted.items()]
        if query.get("order") == "desc":
            found.reverse()
        limit = query.get("limit", "")
        page = found[: int(limit) if limit.isdecimal() else _USUAL_LIMIT]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return {"object": "list", "data": page, **ends, "has_more": len(page) < len(found)}

    def get_stored(self, name: str) -> dict[str, Any] | None:
        return next((each.completion for each in self._ended() if each.completion["id"] == name), None)

    def _ended(self) -> list[_Stored]:
        now = time.monotonic()
        return [each for each in self._stored.all() if each.ends_at <= now]


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
