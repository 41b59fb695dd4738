"""Responses: a POST makes one, and one in the background can be looked at, taken up again and cancelled."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any

from aijobs.simulator import errors
from aijobs.simulator.answers import Answer, InvalidRequest, Prompt, compose, encode, read_prompt
from aijobs.simulator.chat import Posts
from aijobs.simulator.directives import Script
from aijobs.simulator.generation import Generation
from aijobs.simulator.options import Options
from aijobs.simulator.records import Kept, Record, Records, now
from aijobs.simulator.reply import Reply
from aijobs.simulator.wire import Connection, Head

# A stream whose next event is far off sees this soon that its response was cancelled.
_LOOK_SECONDS = 0.05
# How a stream breaks off while its response goes on; an error is the response's own end.
_BREAKS = frozenset({"cut", "reset", "hang"})
_BROKEN_EVENT = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":\n\n'
_PREFIX = "/v1/responses/"


@dataclass(frozen=True)
class _Whole(Answer):
    """An answer in one piece, that is a response."""

    document: dict[str, Any]

    def completion(self, script: Script) -> dict[str, Any]:
        return self.document


class EventStream(Reply):
    """The answer that shows a response event by event."""

    async def follow(self, generation: Generation, script: Script, first: int = 0) -> bool:
        """The events from a number on, as they come to be. Returns whether the last one was among them."""
        after, how = script.breaks or (0, "")
        end = generation.total
        if how in _BREAKS:
            end = len(generation.opening) + min(after, len(generation.answer.deltas))
        elif not script.done:
            end -= 1
        self._begin(script, length=None)
        for number in range(first, end):
            if not await self._comes(generation, number):
                break
            told = generation.event(number)
            named = b"event: " + told["type"].encode() + b"\ndata: " + encode(told) + b"\n\n"
            await self._write_split(named, script.split_emoji and generation.is_delta(number))
            self._pending_deltas += generation.is_delta(number)
            if number == 0 and script.malformed:
                await self._write(_BROKEN_EVENT)
        if how in _BREAKS and generation.cancelled_at is None:
            await self._break_off(how)
        await self._end_of_stream()
        return end == generation.total and generation.cancelled_at is None and script.malformed is None

    async def _comes(self, generation: Generation, number: int) -> bool:
        """Wait for an event; false if it will never be, because the response was cancelled."""
        while True:
            remaining = generation.due_at(number) - (generation.cancelled_at or time.monotonic())
            if remaining <= 0 or generation.cancelled_at is not None:
                return remaining <= 0
            await self._flush()
            await self._connection.pause(min(remaining, _LOOK_SECONDS))


class Responses(Posts[Generation]):
    """What all responses of one server share."""

    reply_type = EventStream

    def __init__(self, options: Options, records: Records) -> None:
        super().__init__(options, records)
        self._kept: Kept[Generation] = Kept()

    def read(self, body: bytes) -> Prompt:
        """A response's body is read as that of the chat completion that asks for the same."""
        asked = _document(body)
        given = asked.get("input")
        said = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(said, list) or not said:
            raise InvalidRequest("input must be a text or a list of messages.")
        same = {"model": asked.get("model"), "messages": said, "stream": asked.get("stream")}
        return read_prompt(json.dumps(same | {"max_tokens": asked.get("max_output_tokens")}).encode())

    def begin(self, body: bytes, prompt: Prompt, script: Script) -> Generation:
        asked = _document(body)
        # Its id is all that it is found by, also by a client that outlives this process: it never comes again.
        answer = compose(prompt, script, reply_id=f"resp_sim_{secrets.token_hex(12)}", created=int(time.time()))
        after, how = script.breaks or (0, "")
        if how == "error":
            answer = replace(answer, deltas=answer.deltas[:after])
        generation = Generation(
            # Of a prompt nothing is kept.
            replace(answer, prompt=replace(prompt, last_user_text="")),
            background=asked.get("background") is True,
            metadata=asked["metadata"] if isinstance(asked.get("metadata"), dict) else {},
            begins_at=time.monotonic() + script.first_byte_ms / 1000,
            delta_seconds=script.delta_ms / 1000,
            tells_usage=script.usage != "off",
            error=errors.by_status(500, script.error) if how == "error" else None,
        )
        if generation.background:
            self._kept.put(answer.id, generation)
        return generation

    async def write(self, reply: Reply, prompt: Prompt, work: Generation, script: Script) -> bool:
        assert isinstance(reply, EventStream)
        if prompt.stream:
            return await reply.follow(work, script)
        answer, document = work.answer, work.finally_()
        if work.background:
            # It is shown as it is, and may fail later.
            answer, document, script = replace(answer, deltas=()), work.now(), replace(script, error_after=None)
        whole = _Whole(answer.id, answer.created, prompt, answer.deltas, answer.finish_reason, document)
        return await reply.completion(whole, script)

    async def answer_about(self, connection: Connection, head: Head) -> bool:
        """GET one response, as an object or as its events; or POST its end."""
        reply = EventStream(connection, head, Record(None, None, now()))
        name, _, verb = head.path.removeprefix(_PREFIX).partition("/")
        generation = self._kept.get(name)
        after = head.query.get("starting_after", "-1")
        if generation is None or (head.method, verb) not in (("GET", ""), ("POST", "cancel")):
            refusal = errors.ErrorAnswer(404, "invalid_request_error", None, "there is no such response.")
            await reply.whole(404, {}, encode(refusal.body()))
        elif verb:
            generation.cancel()
            await reply.whole(200, {}, encode(generation.now()))
        elif head.query.get("stream") != "true":
            await reply.whole(200, {}, encode(generation.now()))
        elif after.removeprefix("-").isdecimal():
            await reply.follow(generation, Script(), first=max(0, int(after) + 1))
        else:
            await reply.whole(400, {}, encode(errors.by_status(400).body()))
        return reply.keep_alive


def _document(body: bytes) -> dict[str, Any]:
    """Raises InvalidRequest."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON.") from None
    if not isinstance(asked, dict):
        raise InvalidRequest("the body is not a JSON object.")
    return asked
