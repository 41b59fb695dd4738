"""OpenAI chat completions, and the many servers that speak the same.

The reply is always asked for as a stream: it shows progress, and its end is marked. It counts as a success only when
each choice has finished and the end mark `[DONE]` was seen. Some compatible servers leave it out; then a body whose end
is framed (chunked, or with a length) is complete too, while a connection that just closed proves nothing. A server that
ignores `stream` and answers with one JSON document is understood as well: half a document does not parse.

With `stored = true` the provider keeps each completion under our key, so that one whose reply was lost can be found.
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
from aijobs.providers.openai_stored import find_completion, kept_under
from aijobs.providers.reply_text import ReplyText, TextTooLarge
from aijobs.providers.transport import HttpReply, ReplyTooLarge, TransportFailure
from aijobs.sse import EventTooLarge, read_events


class OpenAIChat:
    """POST {base_url}/chat/completions."""

    def __init__(self, provider: ProviderSettings, api_key: str | None) -> None:
        """Raises ConfigError for a key that no header can carry."""
        self._endpoint = Endpoint(provider, api_key)

    @property
    def ask_by(self) -> AskBy | None:
        return "key" if self._endpoint.provider.stored else None

    def chat_body(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """A chat completion's body is what other adapters translate from."""
        return dict(wanted)

    def call(
        self,
        request: Request,
        *,
        exchange: Exchange,
        on_delta: Callable[[str], None] | None = None,
        on_operation: Callable[[str], None] | None = None,
    ) -> Reply:
        """See base.Adapter.call."""
        # No other stream option: many compatible servers refuse those they do not know.
        body = {**request.body, "stream": True, "stream_options": {"include_usage": True}}
        if self._endpoint.provider.stored:
            body |= kept_under(request.dedupe_key, request.body)
        try:
            with self._endpoint.send(
                "POST",
                "/chat/completions",
                document=body,
                headers={"X-Client-Request-Id": header_safe(request.client_request_id)},
                exchange=exchange,
            ) as reply:
                text = ReplyText(self._endpoint.provider.max_reply_bytes)
                return _Reading(reply, exchange, on_delta, self._endpoint.private(request.body), text).read()
        except TransportFailure as failure:
            raise error_of(classify.of_transport(failure, exchange), exchange) from failure

    def ask(self, lost: Lost, *, exchange: Exchange, on_delta: Callable[[str], None] | None = None) -> Reply:
        """See base.Adapter.ask."""
        reply, completion = find_completion(self._endpoint, lost, exchange)
        text = ReplyText(self._endpoint.provider.max_reply_bytes)
        private = self._endpoint.private(lost.request.body)
        return _Reading(reply, exchange, on_delta, private, text).read_stored(completion)

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
    finished: dict[int, str] = field(default_factory=dict)  # choice index -> finish_reason
    begun: set[int] = field(default_factory=set)
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    completion_id: str | None = None

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

    def read_stored(self, completion: Mapping[str, Any]) -> Reply:
        """A completion that the provider has kept."""
        try:
            self._take_document(completion, "message")
            self._show(self.text.flush())
        except TextTooLarge as error:
            raise self._unknown("reply_too_large", f"The reply is too large: {error}.") from error
        if not self._complete():
            raise self._unknown("unexpected_reply", "The provider's answer has no finished choice.")
        return self._result()

    def _read_stream(self) -> None:
        empty = True
        for event in read_events(self.reply.pieces()):
            if event.data.strip() == "[DONE]":
                if not self._complete():
                    raise self._unknown("reply_incomplete", "The reply's end came before its choices had finished.")
                return
            if event.data.strip():
                empty = False
                self._take(event.data, "delta")
        if empty and self.reply.framed:
            raise self._unknown("malformed_reply", "The provider's answer is empty.")
        if not (self._complete() and self.reply.framed):
            raise self._unknown("reply_cut", "The reply broke off before its end mark.")

    def _read_document(self) -> None:
        self._take(self.reply.body().decode("utf-8-sig", "replace"), "message")
        if not self._complete():
            raise self._unknown("unexpected_reply", "The provider's answer has no finished choice.")

    def _take(self, text: str, part: str) -> None:
        """One chunk of a stream, or the whole completion: the text of a choice is in its delta, or its message."""
        try:
            document = reply_json.parse(text)
        except ValueError as error:
            raise self._unknown("malformed_reply", "The provider's answer is not JSON.") from error
        if not isinstance(document, dict):
            raise self._unknown("unexpected_reply", "The provider's answer is not a JSON object.")
        self._take_document(document, part)

    def _take_document(self, document: Mapping[str, Any], part: str) -> None:
        if document.get("error"):
            had_output = bool(self.text or self.finished)
            failure = classify.of_error_in_reply(document, had_output=had_output, private=self.private)
            raise self._error(failure)
        self.usage = reply_json.usage(document.get("usage")) or self.usage
        self.model = reply_json.identifier(document.get("model")) or self.model
        self.completion_id = reply_json.identifier(document.get("id")) or self.completion_id
        choices = document.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                self._take_choice(choice, part)

    def _take_choice(self, choice: Mapping[str, Any], part: str) -> None:
        index = choice.get("index")
        index = index if isinstance(index, int) else 0
        self.begun.add(index)
        message = choice.get(part)
        if isinstance(message, dict) and index == 0:
            try:
                said = reply_json.said(message)
            except ValueError as error:
                raise self._unknown("unexpected_reply", f"The provider's answer has {error}.") from error
            self._show(self.text.add(said))
        reason = reply_json.identifier(choice.get("finish_reason"))
        if reason is not None:
            self.finished[index] = reason

    def _show(self, ready: str) -> None:
        if ready and self.on_delta is not None:
            self.on_delta(ready)

    def _complete(self) -> bool:
        return bool(self.begun) and self.begun == self.finished.keys()

    def _result(self) -> Reply:
        text = self.text.whole()
        reason = self.finished[min(self.finished)]
        if reason == "content_filter" and not text:
            failure = Failure(ErrorClass.PERMANENT, "content_filtered", "The provider's filter refuses this content.")
            raise self._error(failure)
        return Reply(
            text=text,
            finish_reason=reason,
            model=self.model,
            usage=self.usage,
            http_status=self.reply.status,
            provider_request_id=self._request_id(),
            provider_operation_id=self.completion_id,
        )

    def _unknown(self, code: str, words: str) -> ProviderError:
        return self._error(Failure(ErrorClass.UNKNOWN, code, words))

    def _error(self, failure: Failure) -> ProviderError:
        return error_of(
            failure,
            self.exchange,
            self.reply,
            request_id=self._request_id(),
            operation_id=self.completion_id,
            usage=self.usage,
            output_characters=self.text.characters,
        )

    def _request_id(self) -> str | None:
        return reply_json.identifier(self.reply.headers.get("x-request-id"))
