"""One response, as it is at any moment.

No task makes it. Its deltas are known from the start, and so is when each of them is due: the rest follows from the
clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aijobs.simulator import errors
from aijobs.simulator.answers import Answer

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass
class Generation:
    """One response. `begins_at` is when it leaves the queue; `error` how it fails after its last delta, if it does."""

    answer: Answer
    background: bool
    metadata: Mapping[str, Any]
    begins_at: float
    delta_seconds: float
    tells_usage: bool
    error: errors.ErrorAnswer | None
    cancelled_at: float | None = None
    opening: list[dict[str, Any]] = field(init=False)
    ending: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        empty, part = self._item(None), {"type": "output_text", "text": "", "annotations": []}
        queued = [_event("response.queued", response=self._object("queued"))] if self.background else []
        self.opening = [
            _event("response.created", response=self._object("queued" if self.background else "in_progress")),
            *queued,
            _event("response.in_progress", response=self._object("in_progress")),
            _event("response.output_item.added", output_index=0, item=empty),
            _event("response.content_part.added", **self._place(), part=part),
        ]
        status = self._final_status()
        last = _event(f"response.{status}", response=self._object(status))
        whole = [
            _event("response.output_text.done", **self._place(), text=self._text()),
            _event("response.content_part.done", **self._place(), part=part | {"text": self._text()}),
            _event("response.output_item.done", output_index=0, item=self._item(status)),
        ]
        self.ending = [last] if self.error else [*whole, last]

    @property
    def total(self) -> int:
        """How many events tell the whole of it."""
        return len(self.opening) + len(self.answer.deltas) + len(self.ending)

    def event(self, number: int) -> dict[str, Any]:
        place, deltas = number - len(self.opening), self.answer.deltas
        if place < 0:
            told = self.opening[number]
        elif place < len(deltas):
            told = _event("response.output_text.delta", **self._place(), delta=deltas[place])
        else:
            told = self.ending[place - len(deltas)]
        return told | {"sequence_number": number}

    def is_delta(self, number: int) -> bool:
        return len(self.opening) <= number < len(self.opening) + len(self.answer.deltas)

    def due_at(self, number: int) -> float:
        """When the event comes to be. The first ones are there at once, the last ones come with the last delta."""
        if number < len(self.opening):
            return 0.0
        made = min(number - len(self.opening) + 1, len(self.answer.deltas))
        return self.begins_at + made * self.delta_seconds

    def is_over(self) -> bool:
        return self.cancelled_at is not None or time.monotonic() >= self.due_at(self.total - 1)

    def cancel(self) -> None:
        if not self.is_over():
            self.cancelled_at = time.monotonic()

    def now(self) -> dict[str, Any]:
        """The response as an object, at this moment."""
        if self.cancelled_at is not None:
            return self._object("cancelled")
        if self.is_over():
            return self.finally_()
        return self._object("in_progress" if time.monotonic() >= self.begins_at else "queued")

    def finally_(self) -> dict[str, Any]:
        """The response as an object, at its end."""
        return self._object(self._final_status())

    def _final_status(self) -> str:
        if self.error is not None:
            return "failed"
        return "incomplete" if self.answer.finish_reason in _INCOMPLETE else "completed"

    def _object(self, status: str) -> dict[str, Any]:
        ended = status in ("completed", "incomplete")
        reason = _INCOMPLETE.get(self.answer.finish_reason) if status == "incomplete" else None
        error = None
        if status == "failed" and self.error is not None:
            told = self.error.body()["error"]
            error = {"code": told["code"] or told["type"], "message": told["message"]}
        return {
            "id": self.answer.id,
            "object": "response",
            "created_at": self.answer.created,
            "status": status,
            "background": self.background,
            "error": error,
            "incomplete_details": reason and {"reason": reason},
            "model": self.answer.prompt.model,
            "output": [self._item(status)] if ended else [],
            "usage": self._usage() if ended and self.tells_usage else None,
            "metadata": self.metadata,
        }

    def _item(self, status: str | None) -> dict[str, Any]:
        """The one message, empty before its end."""
        content = [] if status is None else [{"type": "output_text", "text": self._text(), "annotations": []}]
        shown = {"id": f"msg_{self.answer.id}", "type": "message", "role": "assistant", "content": content}
        return shown | {"status": status or "in_progress"}

    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self.answer.id}", "output_index": 0, "content_index": 0}

    def _text(self) -> str:
        return "".join(self.answer.deltas)

    def _usage(self) -> dict[str, Any]:
        tokens = self.answer.usage()
        return {
            "input_tokens": tokens["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": tokens["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens["total_tokens"],
        }


def _event(kind: str, **told: Any) -> dict[str, Any]:
    return {"type": kind, **told}
