"""Anthropic's messages.

The reply is asked for as a stream, and is a success only when `message_stop` was seen. Their input tokens do not
include those of the cache, so that the three are added up; output tokens are told as a running total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Failure, Usage
from aijobs.errors import ProviderError
from aijobs.providers import classify, reply_json
from aijobs.providers.base import AskBy, Lost, Reply, Request
from aijobs.providers.endpoint import Endpoint, error_of, failure_of_status, header_safe
from aijobs.providers.exchange import Exchange
from aijobs.providers.reply_text import ReplyText, TextTooLarge
from aijobs.providers.transport import HttpReply, ReplyTooLarge, TransportFailure
from aijobs.sse import EventTooLarge, read_events

# Their reasons to stop, in the words of chat completions; what is not here is passed on as it is.
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}
_SYSTEM_ROLES = ("system", "developer")


class Anthropic:
    """POST {base_url}/messages."""

    def __init__(self, provider: ProviderSettings, api_key: str | None) -> None:
        """Raises ConfigError for a key that no header can carry."""
        self._endpoint = Endpoint(provider, api_key, key_header=("x-api-key", ""))

    @property
    def ask_by(self) -> AskBy | None:
        return None

    def chat_body(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """System messages stand apart, and max_tokens must be there."""
        body: dict[str, Any] = {
            "model": wanted["model"],
            "max_tokens": wanted.get("max_tokens", self._endpoint.provider.default_max_tokens),
            "messages": [message for message in wanted["messages"] if message["role"] not in _SYSTEM_ROLES],
        }
        system = [message["content"] for message in wanted["messages"] if message["role"] in _SYSTEM_ROLES]
        if system:
            body["system"] = "\n\n".join(system)
        if "stop" in wanted:
            body["stop_sequences"] = wanted["stop"]
        return body | {name: wanted[name] for name in ("temperature", "top_p") if name in wanted}

    def call(
        self,
        request: Request,
        *,
        exchange: Exchange,
        on_delta: Callable[[str], None] | None = None,
        on_operation: Callable[[str], None] | None = None,
    ) -> Reply:
        """See base.Adapter.call."""
        headers = {
            "anthropic-version": self._endpoint.provider.api_version,
            "X-Client-Request-Id": header_safe(request.client_request_id),
        }
        body = {**request.body, "stream": True}
        try:
            with self._endpoint.send("POST", "/messages", document=body, headers=headers, exchange=exchange) as reply:
                text = ReplyText(self._endpoint.provider.max_reply_bytes)
                return _Reading(reply, exchange, on_delta, self._endpoint.private(request.body), text).read()
        except TransportFailure as failure:
            raise error_of(classify.of_transport(failure, exchange), exchange) from failure

    def ask(self, lost: Lost, *, exchange: Exchange, on_delta: Callable[[str], None] | None = None) -> Reply:
        raise AssertionError("this provider cannot be asked about a lost call")

    def cancel(self, operation_id: str, *, exchange: Exchange) -> bool | None:
        return None


@dataclass(slots=True)
class _Reading:
    """Reading one reply."""

    reply: HttpReply
    exchange: Exchange
    on_delta: Callable[[str], None] | None
    private: Iterator[str]
    text: ReplyText
    usage: dict[str, Any] = field(default_factory=dict)  # the newest number of each name
    stop_reason: str | None = None
    model: str | None = None
    message_id: str | None = None
    begun: bool = False  # there was some output, be it no text

    def read(self) -> Reply:
        if self.reply.status != 200:
            raise self._error(failure_of_status(self.reply, self.private))
        try:
            if "event-stream" in self.reply.headers.get("Content-Type", "").lower():
                self._read_stream()
            else:
                self._read_document()
            self._show(self.text.flush())
        except (ReplyTooLarge, EventTooLarge, TextTooLarge) as error:
            raise self._unknown("reply_too_large", f"The reply is too large: {error}.") from error
        except TransportFailure as failure:
            raise self._error(classify.of_transport(failure, self.exchange)) from failure
        return self._result()

    def _read_stream(self) -> None:
        for event in read_events(self.reply.pieces()):
            document = self._parsed(event.data)
            match document.get("type") or event.name:
                case "message_start":
                    self._learn(document.get("message"))
                case "content_block_start":
                    self._take(document.get("content_block"))
                case "content_block_delta":
                    self.begun = True
                    self._take(document.get("delta"))
                case "message_delta":
                    self._learn(document.get("delta"))
                    self._count(document.get("usage"))
                case "message_stop":
                    if self.stop_reason is None:
                        raise self._unknown("reply_incomplete", "The reply's end came before its reason to stop.")
                    return
                case "error":
                    failure = classify.of_error_in_reply(
                        document, had_output=bool(self.text or self.begun), private=self.private
                    )
                    raise self._error(failure)
        raise self._unknown("reply_cut", "The reply broke off before its end.")

    def _read_document(self) -> None:
        document = self._parsed(self.reply.body().decode("utf-8-sig", "replace"))
        if document.get("type") == "error" or document.get("error"):
            raise self._error(classify.of_error_in_reply(document, had_output=False, private=self.private))
        self._learn(document)
        content = document.get("content")
        for block in content if isinstance(content, list) else []:
            self._take(block)
        if self.stop_reason is None or not isinstance(content, list):
            raise self._unknown("unexpected_reply", "The provider's answer is not a finished message.")

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            document = reply_json.parse(text)
        except ValueError as error:
            raise self._unknown("malformed_reply", "The provider's answer is not JSON.") from error
        if not isinstance(document, dict):
            raise self._unknown("unexpected_reply", "The provider's answer is not a JSON object.")
        return document

    def _learn(self, message: Any) -> None:
        """What a message, or a change of it, says of itself."""
        if isinstance(message, dict):
            self.message_id = reply_json.identifier(message.get("id")) or self.message_id
            self.model = reply_json.identifier(message.get("model")) or self.model
            self.stop_reason = reply_json.identifier(message.get("stop_reason")) or self.stop_reason
            self._count(message.get("usage"))

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.usage |= {name: number for name, number in usage.items() if type(number) is int}

    def _take(self, block: Any) -> None:
        """A block of content, or a piece of one: of what is not text nothing is shown."""
        if isinstance(block, dict) and block.get("type") in ("text", "text_delta"):
            said = block.get("text")
            if not isinstance(said, str):
                raise self._unknown("unexpected_reply", "The provider's answer has a text that is none.")
            self._show(self.text.add(said))

    def _show(self, ready: str) -> None:
        if ready and self.on_delta is not None:
            self.on_delta(ready)

    def _result(self) -> Reply:
        text = self.text.whole()
        reason = _FINISH_REASONS.get(self.stop_reason or "", self.stop_reason)
        if reason == "content_filter" and not text:
            failure = Failure(ErrorClass.PERMANENT, "content_filtered", "The provider's filter refuses this content.")
            raise self._error(failure)
        return Reply(
            text=text,
            finish_reason=reason,
            model=self.model,
            usage=self._tokens(),
            http_status=self.reply.status,
            provider_request_id=self._request_id(),
            provider_operation_id=self.message_id,
        )

    def _tokens(self) -> Usage:
        return reply_json.any_usage(self.usage)

    def _unknown(self, code: str, words: str) -> ProviderError:
        return self._error(Failure(ErrorClass.UNKNOWN, code, words))

    def _error(self, failure: Failure) -> ProviderError:
        return error_of(
            failure,
            self.exchange,
            self.reply,
            request_id=self._request_id(),
            operation_id=self.message_id,
            usage=self._tokens(),
            output_characters=self.text.characters,
        )

    def _request_id(self) -> str | None:
        headers = self.reply.headers
        return reply_json.identifier(headers.get("request-id") or headers.get("x-request-id"))
