"""Where a provider is, how we show who we are, and what we repeat of its errors: what all adapters have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from aijobs.config import ProviderSettings
from aijobs.domain.failures import Failure, Usage
from aijobs.errors import ConfigError, ProviderError
from aijobs.providers import classify, reply_json
from aijobs.providers.exchange import Exchange
from aijobs.providers.quoting import texts_in
from aijobs.providers.transport import HttpReply, ReplyTooLarge, TransportFailure, send

# Errors come as small documents; of a gateway's page no more is read than that.
_ERROR_BYTES = 65536
# OpenAI takes no longer ones; and a step's name, which may be part of it, is any text.
_REQUEST_ID_CHARACTERS = 512
_BEARER = ("Authorization", "Bearer ")


class Endpoint:
    """A provider's base URL with our key. `key_header` is the header's name, and what stands before the key in it."""

    def __init__(self, provider: ProviderSettings, api_key: str | None, key_header: tuple[str, str] = _BEARER) -> None:
        """Raises ConfigError for a key that no header can carry."""
        if api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise ConfigError([f"the key of [providers.{provider.name}] has characters that no header can carry."])
        self.provider = provider
        self._api_key = api_key
        self._base_url = provider.base_url.rstrip("/")
        self._key_header = key_header

    def send(
        self,
        method: str,
        path: str,
        *,
        exchange: Exchange,
        document: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractContextManager[HttpReply]:
        """Send one request; see transport.send. `path` follows the base URL, `document` is sent as JSON if given."""
        provider = self.provider
        ours = {"Accept": "text/event-stream, application/json"}
        if document is not None:
            ours["Content-Type"] = "application/json"
        if self._api_key is not None:
            name, before = self._key_header
            ours[name] = before + self._api_key
        return send(
            method,
            self._base_url + path,
            headers={**ours, **(headers or {})},
            body=None if document is None else json.dumps(document).encode(),
            exchange=exchange,
            connect_seconds=provider.connect_seconds,
            read_seconds=provider.read_seconds,
            max_reply_bytes=provider.max_reply_bytes,
            proxy=provider.proxy,
        )

    def private(self, body: Mapping[str, Any]) -> Iterator[str]:
        """What no message may repeat: our key, and what a request says."""
        if self._api_key is not None:
            yield self._api_key
        yield from texts_in({name: value for name, value in body.items() if name != "model"})


def header_safe(request_id: str) -> str:
    """A request's id as a header can carry it."""
    return re.sub(r"[^\x21-\x7e]", "_", request_id)[:_REQUEST_ID_CHARACTERS]


def failure_of_status(reply: HttpReply, private: Iterator[str]) -> Failure:
    """What a complete answer with an error status means, by its status and body."""
    taken = bytearray()
    try:
        for piece in reply.pieces():
            taken += piece
            if len(taken) >= _ERROR_BYTES:
                break
    except (TransportFailure, ReplyTooLarge):
        pass  # the status, which came whole, then says what it can
    body = reply_json.parse_or_none(bytes(taken))
    return classify.of_response(reply.status, reply.headers, body, datetime.now(UTC), private=private)


def error_of(
    failure: Failure,
    exchange: Exchange,
    reply: HttpReply | None = None,
    *,
    request_id: str | None = None,
    operation_id: str | None = None,
    usage: Usage | None = None,
    output_characters: int = 0,
) -> ProviderError:
    """A failure with what is known of the call."""
    return ProviderError(
        failure,
        phase=exchange.phase,
        http_status=None if reply is None else reply.status,
        provider_request_id=request_id,
        provider_operation_id=operation_id,
        usage=None if usage == Usage() else usage,
        output_characters=output_characters,
    )
