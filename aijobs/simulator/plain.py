"""A service that is no model's API: one POST of JSON, one document back, and each key's work done once."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from typing import Any

from aijobs.simulator.answers import Answer, InvalidRequest, Prompt, compose
from aijobs.simulator.chat import Posts
from aijobs.simulator.directives import Script
from aijobs.simulator.options import Options
from aijobs.simulator.records import Kept, Record, Records
from aijobs.simulator.reply import Reply
from aijobs.simulator.wire import Connection, Head


@dataclass(frozen=True)
class _Document(Answer):
    """An answer that is a document of the service's own."""

    def completion(self, script: Script) -> dict[str, Any]:
        usage = {} if script.usage == "off" else {"usage": self.usage()}
        return {"ok": True, "id": self.id, "output": {"text": "".join(self.deltas)}} | usage


@dataclass(frozen=True)
class _Done:
    """The work of a key: its document, and when it is there."""

    document: _Document
    ends_at: float


class Plain(Posts[Answer]):
    """What all generic POSTs of one server share.

    With an `Idempotency-Key` the work goes on without its client, and a repeat is answered from it and counted as no
    generation. What was refused was not done, so that a repeat of it is a first time.
    """

    def __init__(self, options: Options, records: Records) -> None:
        super().__init__(options, records)
        self._numbers = itertools.count(1)
        self._done: Kept[_Done] = Kept()
        self._key: str | None = None

    def read(self, body: bytes) -> Prompt:
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            raise InvalidRequest("the body is not JSON.") from None
        said = asked.get("prompt") if isinstance(asked, dict) else None
        if not isinstance(said, str):
            raise InvalidRequest("prompt must be a text.")
        return Prompt("plain", said, len(said) // 4, stream=False, include_usage=False, most_tokens=None)

    async def _answer(self, connection: Connection, head: Head, body: bytes, record: Record, reply: Reply) -> bool:
        key = head.headers.get("idempotency-key")
        done = None if key is None else self._done.get(key)
        if done is None:
            self._key = key  # `begin` runs before anything is waited for
            return await super()._answer(connection, head, body, record, reply)
        record.marker = self._script(self.read(body), "").marker or record.client_request_id
        self._records.decide(record, generation=False)
        await connection.pause(max(0.0, done.ends_at - time.monotonic()))
        return await reply.completion(done.document, Script())

    def begin(self, body: bytes, prompt: Prompt, script: Script) -> Answer:
        made = compose(prompt, script, reply_id=f"plain-sim-{next(self._numbers)}", created=int(time.time()))
        document = _Document(made.id, made.created, prompt, made.deltas, made.finish_reason)
        if self._key is not None:
            seconds = (script.first_byte_ms + len(made.deltas) * script.delta_ms) / 1000
            self._done.put(self._key, _Done(document, time.monotonic() + seconds))
        return document

    def worked(self, script: Script, *, refused: bool) -> bool:
        return super().worked(script, refused=refused) and not (refused and self._key is not None)

    async def write(self, reply: Reply, prompt: Prompt, work: Answer, script: Script) -> bool:
        return await reply.completion(work, script)
