"""OpenAI chat completions, and the many servers that speak the same.

The reply is always asked for as a stream: it shows progress, and its end is marked. It counts as a success only when
each choice has finished and the end mark `[DONE]` was seen. Some compatible servers leave it out; then a body whose end
is framed (chunked, or with a length) is complete too, while a connection that just closed proves nothing. A server that
ignores `stream` and answers with one JSON document is understood as well: half a document does not parse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Failure, Usage
from aijobs.errors import ConfigError, ProviderError
from aijobs.providers import classify, reply_json
from aijobs.providers.base import Reply
from aijobs.providers.exchange import Exchange
from aijobs.providers.quoting import texts_in
from aijobs.providers.reply_text import ReplyText, TextTooLarge
from aijobs.providers.sse import EventTooLarge, read_events
from aijobs.providers.transport import HttpReply, ReplyTooLarge, TransportFailure, post

# Errors come as small documents; of a gateway's page no more is read than that.
_ERROR_BYTES = 65536
# OpenAI takes no longer ones; and a step's name, which may be part of it, is any text.
_REQUEST_ID_CHARACTERS = 512


class OpenAIChat:
    """POST {base_url}/chat/completions."""

    def __init__(self, provider: ProviderSettings, api_key: str | None) -> None:
        """Raises ConfigError for a key that no header can carry."""
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise ConfigError([f"the key of [providers.{provider.name}] has characters that no header can carry."])
        self._provider = provider
        self._api_key = api_key
        self._url = provider.base_url.rstrip("/") + "/chat/completions"

    def call(
        self,
        body: Mapping[str, Any],
        *,
        exchange: Exchange,
        client_request_id: str,
        on_delta: Callable[[str], None] | None = None,
    ) -> Reply:
        """See base.Adapter.call."""
        # No other stream option: many compatible servers refuse those they do not know.
        request = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with post(
                self._url,
                headers=self._headers(client_request_id),
                body=json.dumps(request).encode(),
                exchange=exchange,
                connect_seconds=self._provider.connect_seconds,
                read_seconds=self._provider.read_seconds,
                max_reply_bytes=self._provider.max_reply_bytes,
                proxy=self._provider.proxy,
            ) as reply:
                text = ReplyText(self._provider.max_reply_bytes)
                return _Reading(reply, exchange, on_delta, self._private(body), text).read()
        except TransportFailure as failure:
            raise ProviderError(classify.of_transport(failure, exchange), phase=exchange.phase) from failure

    def _headers(self, client_request_id: str) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "X-Client-Request-Id": re.sub(r"[^\x21-\x7e]", "_", client_request_id)[:_REQUEST_ID_CHARACTERS],
        }
        return headers if self._api_key is None else headers | {"Authorization": f"Bearer {self._api_key}"}

    def _private(self, body: Mapping[str, Any]) -> Iterator[str]:
        """What no message may repeat."""
        if self._api_key is not None:
            yield self._api_key
        yield from texts_in({name: value for name, value in body.items() if name != "model"})


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
            raise self._error_status()
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

    def _error_status(self) -> ProviderError:
        taken = bytearray()
        try:
            for piece in self.reply.pieces():
                taken += piece
                if len(taken) >= _ERROR_BYTES:
                    break
        except (TransportFailure, ReplyTooLarge):
            pass  # the status, which came whole, then says what it can
        body = reply_json.parse_or_none(bytes(taken))
        now = datetime.now(UTC)
        status, headers = self.reply.status, self.reply.headers
        return self._error(classify.of_response(status, headers, body, now, private=self.private))

    def _unknown(self, code: str, words: str) -> ProviderError:
        return self._error(Failure(ErrorClass.UNKNOWN, code, words))

    def _error(self, failure: Failure) -> ProviderError:
        return ProviderError(
            failure,
            phase=self.exchange.phase,
            http_status=self.reply.status,
            provider_request_id=self._request_id(),
            provider_operation_id=self.completion_id,
            usage=None if self.usage == Usage() else self.usage,
        )

    def _request_id(self) -> str | None:
        return reply_json.identifier(self.reply.headers.get("x-request-id"))
