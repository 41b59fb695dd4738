"""What is known of one response of OpenAI's Responses API, from whichever of its events and objects it was learned.

A response is told in two ways: by numbered events, of which some carry a piece of its text, and as one object, which
holds all of it once it is final. A stream may break and be taken up again, or be given up for the object: so the pieces
that were shown are kept, and of the final text only what follows them is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aijobs.domain.failures import ErrorClass, Failure, Usage
from aijobs.providers import classify, reply_json
from aijobs.providers.quoting import quotable
from aijobs.providers.reply_text import ReplyText, TextTooLarge, clean
from aijobs.sse import ServerEvent

FINAL_STATUSES = frozenset({"completed", "incomplete", "failed", "cancelled"})
_FINAL_EVENTS = {f"response.{status}": status for status in FINAL_STATUSES}
_TEXT_EVENTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
# The parts of a message that are its text, and where in them it stands: a refusal is an answer as well.
_TEXT_PARTS = {"output_text": "text", "refusal": "refusal"}
# Why a response is incomplete, in the words that chat completions have for it.
_FINISH_REASONS = {"max_output_tokens": "length"}
# Why a response failed, where it may go well another time.
_PASSING_ERRORS = frozenset({"server_error", "vector_store_timeout"})
# Gateways put whole addresses into an id: one that is cut short leads nowhere.
_OPERATION_ID = re.compile(r"[\x21-\x7e]{1,1000}")


class Unreadable(Exception):
    """What came is not what a response is told by. `code` and `words` as a Failure has them."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class ErrorEvent(Exception):
    """The provider ended a stream with an error, in `body`, that need not be the end of the response."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__("an error inside the reply")
        self.body = body


@dataclass(slots=True)
class Progress:
    """One response so far. `on_operation` is told its id as soon as that is known."""

    max_bytes: int
    on_delta: Callable[[str], None] | None = None
    on_operation: Callable[[str], None] | None = None
    operation_id: str | None = None
    model: str | None = None
    usage: Usage = field(default_factory=Usage)
    final: Mapping[str, Any] | None = None
    status: str | None = None
    sequence: int | None = None  # the number of the last event
    numbered: bool = True  # whether every event had one, so that a stream can be taken up after the last
    _gapless: bool = True  # whether every piece of the text so far was seen
    _text: ReplyText = field(init=False)

    def __post_init__(self) -> None:
        self._text = ReplyText(self.max_bytes)

    @property
    def resumable(self) -> bool:
        return self.numbered and self.sequence is not None

    @property
    def characters(self) -> int:
        """How much text there is so far."""
        return self._text.characters

    @property
    def had_output(self) -> bool:
        return bool(self._text)

    def take_event(self, event: ServerEvent, *, resumed: bool) -> None:
        """One event of a stream. Raises Unreadable, ErrorEvent, TextTooLarge, and what the listeners raise."""
        document = parsed(event.data)
        kind = reply_json.identifier(document.get("type")) or event.name
        if not self._is_new(document, resumed=resumed):
            return
        if kind == "error" or (document.get("error") and "response" not in document):
            raise ErrorEvent(document if isinstance(document.get("error"), dict) else {"error": document})
        response = document.get("response")
        if kind in _FINAL_EVENTS:
            self._learn(response if isinstance(response, dict) else {}, _FINAL_EVENTS[kind])
        elif isinstance(response, dict):
            self._learn(response, None)
        elif kind in _TEXT_EVENTS:
            self._take_delta(document.get("delta"))

    def take_object(self, text: str) -> None:
        """The response as one object, in whatever status it is. Raises Unreadable, ErrorEvent."""
        document = parsed(text)
        status = document.get("status")
        if not isinstance(status, str):
            if document.get("error"):
                raise ErrorEvent(document)
            raise Unreadable("unexpected_reply", "The provider's answer is not a response.")
        if status in FINAL_STATUSES:
            self._gapless = self._gapless and not self._text
            self._learn(document, status)
        else:
            self._learn(document, None)

    def whole_text(self) -> str:
        """The text of a final response; what of it was not shown yet is shown. Raises Unreadable, TextTooLarge."""
        assert self.final is not None
        told = _text_of(self.final.get("output"))
        if not told and self._gapless and (told is not None or self._text):
            self._show(self._text.flush())
            return self._text.whole()
        if told is None or (not told and self._text):
            raise Unreadable("unexpected_reply", "The provider's answer does not hold its text.")
        text = clean(told)
        if len(text.encode()) > self.max_bytes:
            raise TextTooLarge(f"more than {self.max_bytes} bytes of text")
        shown = self._text.whole()
        if text.startswith(shown):
            self._show(text[len(shown) :])
        return text

    def finish_reason(self) -> str:
        """Why a response that is completed or incomplete ended, in the words of chat completions."""
        assert self.final is not None
        if self.status == "completed":
            return "stop"
        reason = reply_json.identifier(_part(self.final, "incomplete_details").get("reason")) or "incomplete"
        return _FINISH_REASONS.get(reason, reason)

    def _is_new(self, document: Mapping[str, Any], *, resumed: bool) -> bool:
        """Whether an event was not seen before. Only where a stream is taken up again must its number tell."""
        number = document.get("sequence_number")
        if type(number) is not int:
            self.numbered = False
            self._gapless = self._gapless and not resumed
            return True
        if resumed and self.sequence is not None:
            if number <= self.sequence:
                return False
            if number > self.sequence + 1:
                self._gapless = False
        self.sequence = number
        return True

    def _take_delta(self, delta: Any) -> None:
        """A piece of the text. After a gap no more is shown: the final object has the whole."""
        if not isinstance(delta, str):
            self._gapless = False
        if self._gapless:
            self._show(self._text.add(delta))

    def _learn(self, response: Mapping[str, Any], final_status: str | None) -> None:
        told = response.get("id")
        if self.operation_id is None and isinstance(told, str) and _OPERATION_ID.fullmatch(told):
            self.operation_id = told
            if self.on_operation is not None:
                self.on_operation(told)
        self.model = reply_json.identifier(response.get("model")) or self.model
        self.usage = _usage(response.get("usage")) or self.usage
        if final_status is not None:
            self.final, self.status = response, final_status

    def _show(self, ready: str) -> None:
        if ready and self.on_delta is not None:
            self.on_delta(ready)


def failure_of(response: Mapping[str, Any], private: Iterable[str]) -> Failure:
    """What it means that a response failed: by its error's name, and for good where that is not known to pass."""
    error, private = _part(response, "error"), tuple(private)
    named = classify.of_error_in_reply({"error": error}, had_output=False, private=private)
    if named.error_class is not ErrorClass.UNKNOWN:
        return named
    if reply_json.identifier(error.get("code")) in _PASSING_ERRORS:
        return Failure(ErrorClass.TRANSIENT, "provider_error", "The provider says that it failed at this response.")
    words = "The provider says that this response cannot be made."
    if said := quotable(error.get("message"), private):
        words = f"{words} It says: {said}"
    return Failure(ErrorClass.PERMANENT, "provider_refused_request", words)


def parsed(text: str) -> dict[str, Any]:
    """A JSON object. Raises Unreadable."""
    try:
        document = reply_json.parse(text)
    except ValueError as error:
        raise Unreadable("malformed_reply", "The provider's answer is not JSON.") from error
    if not isinstance(document, dict):
        raise Unreadable("unexpected_reply", "The provider's answer is not a JSON object.")
    return document


def _text_of(output: Any) -> str | None:
    """The text of all messages of a response; None if it does not tell its output. Raises Unreadable."""
    if not isinstance(output, list):
        return None
    texts = []
    for item in output:
        content = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
        for part in content if isinstance(content, list) else []:
            place = _TEXT_PARTS.get(str(part.get("type"))) if isinstance(part, dict) else None
            if place is not None:
                texts.append(part.get(place))
    if not all(isinstance(text, str) for text in texts):
        raise Unreadable("unexpected_reply", "The provider's answer has a text that is none.")
    return "".join(texts)


def _usage(reported: Any) -> Usage | None:
    """The tokens of a response's `usage`, whose numbers have other names than those of a chat completion."""
    if not isinstance(reported, dict):
        return None
    return reply_json.usage(
        {
            "prompt_tokens": reported.get("input_tokens"),
            "completion_tokens": reported.get("output_tokens"),
            "prompt_tokens_details": reported.get("input_tokens_details"),
            "completion_tokens_details": reported.get("output_tokens_details"),
        }
    )


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}
