"""Testing a handler without a database, a worker or a provider.

from aijobs.testing import run_handler

def test_it_sums_up():
    run = run_handler(analyze, {"text": "..."}, replies={"draft": "a draft", "polish": "a summary"})
    assert run.result == {"summary": "a summary"}
    assert [step for step, body in run.calls] == ["draft", "polish"]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aijobs.config import KindSettings
from aijobs.domain.failures import Usage
from aijobs.kinds import Answer
from aijobs.kinds.handlers import Handler, declared, read_payload

Reply = str | Answer | BaseException | Callable[[Mapping[str, Any]], Any]


@dataclass(slots=True)
class HandlerRun:
    """What a handler did: its result, its calls (step and body), what it showed, in order."""

    result: Any = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    progress: list[Any] = field(default_factory=list)
    emitted: str = ""


def run_handler(
    handler: Handler,
    payload: Any,
    *,
    replies: Mapping[str, Reply] | None = None,
    kind: KindSettings | None = None,
    number: int = 1,
    deadline: float = 60.0,
    cancelled: bool = False,
) -> HandlerRun:
    """Run a handler once, as a worker would.

    `replies` has what each step is answered: a text, an Answer, an exception to raise, or a function of the request's
    body that returns one of these. `deadline` is in seconds. What the handler raises is raised here. Raises
    PermanentError for a payload that its schema refuses, AssertionError for a step without a reply, and ValueError or
    TypeError for what no worker would take: a step used twice, a result or progress that is not JSON.
    """
    says = declared(handler)
    name = "handler" if says is None else says.name
    attempt = _Attempt(
        read_payload(None if says is None else says.schema, payload),
        kind or KindSettings(name, handler="tests:handler", on_unknown="hold"),
        replies or {},
        number=number,
        deadline=deadline,
        cancelled=cancelled,
    )
    attempt.run.result = _as_json(handler(attempt))
    return attempt.run


class _Attempt:
    """An attempt whose calls are answered from a table. See kinds.Attempt."""

    def __init__(
        self,
        payload: Any,
        kind: KindSettings,
        replies: Mapping[str, Reply],
        *,
        number: int,
        deadline: float,
        cancelled: bool,
    ) -> None:
        self.payload = payload
        self.kind = kind
        self.number = number
        self.job_id = UUID(int=number)
        self.deadline = deadline
        self.cancelled = cancelled
        self.run = HandlerRun()
        self._replies = replies

    def call(self, step: str, body: Mapping[str, Any], *, stream: bool = False) -> Answer:
        if step in (used for used, _ in self.run.calls):
            raise ValueError(f"step {step!r} was called twice in one attempt; give each call its own name")
        self.run.calls.append((step, dict(body)))
        if step not in self._replies:
            known = ", ".join(sorted(self._replies)) or "none"
            raise AssertionError(f"step {step!r} has no reply; replies has: {known}")
        reply = self._replies[step]
        if callable(reply):
            reply = reply(body)
        if isinstance(reply, BaseException):
            raise reply
        answer = reply if isinstance(reply, Answer) else Answer(reply, "stop", self.kind.model, Usage())
        if stream:
            self.emit(answer.text)
        return answer

    def chat(
        self,
        step: str,
        *,
        messages: list[dict[str, str]],
        model: str | None = None,
        stream: bool = False,
        **options: Any,
    ) -> Answer:
        return self.call(step, {"model": model or self.kind.model, "messages": messages, **options}, stream=stream)

    def progress(self, value: Any) -> None:
        self.run.progress.append(_as_json(value))

    def emit(self, text: str) -> None:
        self.run.emitted += text


def _as_json(value: Any) -> Any:
    """The value as it comes back from the database. Raises TypeError or ValueError for what is not JSON."""
    return json.loads(json.dumps(value, allow_nan=False))
