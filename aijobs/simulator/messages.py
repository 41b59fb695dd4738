"""Anthropic's messages: their request, their events, their usage and their errors."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from typing import Any

from aijobs.simulator import errors
from aijobs.simulator.answers import Answer, InvalidRequest, Prompt, compose, encode, read_prompt
from aijobs.simulator.chat import Posts
from aijobs.simulator.directives import Script
from aijobs.simulator.options import Options
from aijobs.simulator.records import Records
from aijobs.simulator.reply import Reply

# By the reasons of a script, which are those of chat completions.
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}
_ERROR_TYPES = {
    "insufficient_quota": "rate_limit_error",
    "rate_limit_exceeded": "rate_limit_error",
    "server_is_overloaded": "overloaded_error",
    "server_error": "api_error",
    "invalid_api_key": "authentication_error",
}


@dataclass(frozen=True)
class _Message(Answer):
    """An answer as a message. A tenth of its prompt counts as read from the cache, to be told apart."""

    def completion(self, script: Script) -> dict[str, Any]:
        reason = _STOP_REASONS.get(self.finish_reason, self.finish_reason)
        content = [{"type": "text", "text": "".join(self.deltas)}]
        told = {} if script.usage == "off" else {"usage": self._tokens(len(self.deltas))}
        return self._shell(content) | {"stop_reason": reason} | told

    def start(self) -> dict[str, Any]:
        return {"type": "message_start", "message": self._shell([]) | {"usage": self._tokens(1)}}

    def end(self, script: Script) -> dict[str, Any]:
        reason = _STOP_REASONS.get(self.finish_reason, self.finish_reason)
        told = {} if script.usage == "off" else {"usage": {"output_tokens": len(self.deltas)}}
        return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}} | told

    def _shell(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        named = {"id": self.id, "type": "message", "role": "assistant", "model": self.prompt.model}
        return named | {"content": content, "stop_reason": None, "stop_sequence": None}

    def _tokens(self, output: int) -> dict[str, int]:
        cached = self.prompt.tokens // 10
        return {
            "input_tokens": self.prompt.tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": output,
        }


class MessageStream(Reply):
    """The answer that shows a message event by event, and errors in Anthropic's shape."""

    async def whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if status >= 400 and headers.get("content-type", "application/json") == "application/json":
            told = json.loads(body)["error"]
            name = told["code"] or told["type"]
            error = {"type": _ERROR_TYPES.get(name, told["type"]), "message": told["message"]}
            body = encode({"type": "error", "error": error, "request_id": "req_sim"})
        await super().whole(status, headers, body)

    async def message(self, answer: _Message, script: Script) -> bool:
        """The events of a message. Returns whether it was whole."""
        count = len(answer.deltas)
        after, how = script.breaks or (count, "")
        self._begin(script, length=None)
        await self._write(_event(answer.start()))
        await self._write(_event({"type": "ping"}))
        await self._write(_event(_block("start", content_block={"type": "text", "text": ""})))
        if script.malformed:
            await self._write(b'event: content_block_delta\ndata: {"type":"content_block_delta",\n\n')
        for text in answer.deltas[:after]:
            if script.delta_ms:
                await self._flush()
                await self._connection.pause(script.delta_ms / 1000)
            delta = _block("delta", delta={"type": "text_delta", "text": text})
            await self._write_split(_event(delta), script.split_emoji)
            self._pending_deltas += 1
        if how == "error":
            row = errors.by_status(500, script.error)
            name = row.code or row.type
            await self._write(_event({"type": "error", "error": {"type": _ERROR_TYPES.get(name, row.type)}}))
        elif how:
            await self._break_off(how)
        else:
            for told in (_block("stop"), answer.end(script)):
                await self._write(_event(told))
            if script.done:
                await self._write(_event({"type": "message_stop"}))
        await self._end_of_stream()
        return not how and script.done and script.malformed is None


class Messages(Posts[_Message]):
    """What all messages of one server share."""

    reply_type = MessageStream

    def __init__(self, options: Options, records: Records) -> None:
        super().__init__(options, records)
        self._numbers = itertools.count(1)

    def read(self, body: bytes) -> Prompt:
        prompt = read_prompt(body)
        if prompt.most_tokens is None:
            raise InvalidRequest("max_tokens is missing.")
        return prompt

    def begin(self, body: bytes, prompt: Prompt, script: Script) -> _Message:
        made = compose(prompt, script, reply_id=f"msg_sim_{next(self._numbers)}", created=int(time.time()))
        return _Message(made.id, made.created, prompt, made.deltas, made.finish_reason)

    async def write(self, reply: Reply, prompt: Prompt, work: _Message, script: Script) -> bool:
        assert isinstance(reply, MessageStream)
        return await (reply.message if prompt.stream else reply.completion)(work, script)


def _block(verb: str, **told: Any) -> dict[str, Any]:
    return {"type": f"content_block_{verb}", "index": 0, **told}


def _event(document: dict[str, Any]) -> bytes:
    return b"event: " + str(document["type"]).encode() + b"\ndata: " + encode(document) + b"\n\n"
