"""Any service that takes one POST of JSON and answers with JSON, as its section of the configuration describes it.

It is asked at its configured URL and nowhere else. One that does the work of a key only once (`dedupe_header`) may be
sent a lost request again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.errors import ProviderError
from aijobs.providers import classify, reply_json
from aijobs.providers.base import AskBy, Lost, Reply, Request
from aijobs.providers.endpoint import Endpoint, error_of, failure_of_status, header_safe
from aijobs.providers.exchange import Exchange
from aijobs.providers.json_path import find, storable
from aijobs.providers.transport import HttpReply, ReplyTooLarge, TransportFailure


class Http:
    """POST {base_url}."""

    def __init__(self, provider: ProviderSettings, api_key: str | None) -> None:
        """Raises ConfigError for a key that no header can carry."""
        self._endpoint = Endpoint(provider, api_key)

    @property
    def ask_by(self) -> AskBy | None:
        return None if self._endpoint.provider.dedupe_header is None else "repeat"

    def chat_body(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """A service that is no model's API has no chat: what is wanted is sent as it is."""
        return dict(wanted)

    def call(
        self,
        request: Request,
        *,
        exchange: Exchange,
        on_delta: Callable[[str], None] | None = None,
        on_operation: Callable[[str], None] | None = None,
    ) -> Reply:
        """See base.Adapter.call. There are no deltas."""
        headers = {"Accept": "application/json", "X-Client-Request-Id": header_safe(request.client_request_id)}
        if self._endpoint.provider.dedupe_header is not None:
            headers[self._endpoint.provider.dedupe_header] = request.dedupe_key
        try:
            with self._endpoint.send(
                "POST", "", document=dict(request.body), headers=headers, exchange=exchange
            ) as reply:
                return self._read(request, reply, exchange)
        except TransportFailure as failure:
            raise error_of(classify.of_transport(failure, exchange), exchange) from failure

    def ask(self, lost: Lost, *, exchange: Exchange, on_delta: Callable[[str], None] | None = None) -> Reply:
        raise AssertionError("a lost request is sent again, under the same key")

    def cancel(self, operation_id: str, *, exchange: Exchange) -> bool | None:
        return None

    def _read(self, request: Request, reply: HttpReply, exchange: Exchange) -> Reply:
        settings = self._endpoint.provider
        private = self._endpoint.private(request.body)

        def error(error_class: ErrorClass, code: str, words: str) -> ProviderError:
            return error_of(Failure(error_class, code, words), exchange, reply, request_id=_request_id(reply))

        if reply.status not in settings.success_statuses:
            raise error_of(failure_of_status(reply, private), exchange, reply, request_id=_request_id(reply))
        try:
            document = storable(reply_json.parse(reply.body().decode("utf-8-sig", "replace")))
        except ReplyTooLarge as large:
            raise error(ErrorClass.UNKNOWN, "reply_too_large", f"The reply is too large: {large}.") from large
        except ValueError as malformed:
            raise error(ErrorClass.UNKNOWN, "malformed_reply", "The service's answer is not JSON.") from malformed
        if not self._is_success(document):
            words = f"The service's answer does not say success at {settings.success_path}."
            raise error(ErrorClass.PERMANENT, "not_successful", words)
        try:
            value = document if settings.result_path is None else find(document, settings.result_path)
        except LookupError as missing:
            words = f"The service's answer has nothing at {settings.result_path}."
            raise error(ErrorClass.UNKNOWN, "unexpected_reply", words) from missing
        return Reply(
            text=value if isinstance(value, str) else "",
            finish_reason=None,
            model=None,
            usage=reply_json.any_usage(document.get("usage") if isinstance(document, dict) else None),
            http_status=reply.status,
            provider_request_id=_request_id(reply),
            value=value,
        )

    def _is_success(self, document: Any) -> bool:
        settings = self._endpoint.provider
        if settings.success_path is None:
            return True
        try:
            found = find(document, settings.success_path)
        except LookupError:
            return False
        said = found if isinstance(found, str) else str(found).lower()
        return said in settings.success_values


def _request_id(reply: HttpReply) -> str | None:
    return reply_json.identifier(reply.headers.get("x-request-id"))
