"""OpenAI's Responses API, in the background: the provider works on, whatever becomes of the connection.

What can be lost is then only the first event, which tells the response's id. The id is stored before anything else is
read, and from there on the answer is fetched: the stream is taken up again where it broke, or the response is looked at
until it is final. Nothing of that is paid for. A connection that ends at the very first event has been seen to leave a
response queued for ever, so that all waiting has an end, and whoever waits no longer should have it cancelled.

In the foreground (`background = false`) an answer is a stream as that of a chat completion, and a lost one stays lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass
from aijobs.errors import NotSent, ProviderError
from aijobs.providers import reply_json
from aijobs.providers.base import AskBy, Lost, NothingFound, Reply, Request
from aijobs.providers.endpoint import Endpoint
from aijobs.providers.exchange import Exchange
from aijobs.providers.openai_stored import kept_under
from aijobs.providers.responses_events import FINAL_STATUSES, Progress
from aijobs.providers.responses_work import Broken, Work, path_of, unasked
from aijobs.providers.transport import ReplyTooLarge, TransportFailure

_RENAMED = {"messages": "input", "max_tokens": "max_output_tokens"}


class OpenAIResponses:
    """POST {base_url}/responses."""

    def __init__(self, provider: ProviderSettings, api_key: str | None) -> None:
        """Raises ConfigError for a key that no header can carry."""
        self._endpoint = Endpoint(provider, api_key)
        self._background = provider.background

    @property
    def ask_by(self) -> AskBy | None:
        return "operation" if self._background else None

    def chat_body(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Messages are an input as they are, system messages included."""
        return {_RENAMED.get(name, name): value for name, value in wanted.items()}

    def call(
        self,
        request: Request,
        *,
        exchange: Exchange,
        on_delta: Callable[[str], None] | None = None,
        on_operation: Callable[[str], None] | None = None,
    ) -> Reply:
        """See base.Adapter.call."""
        body = {**request.body, "stream": True}
        if self._background:
            # Responses cannot be listed: our key is there for people who look for it at the provider.
            body |= {"background": True} | kept_under(request.dedupe_key, request.body)
        told = on_operation if self._background else None
        progress = Progress(self._endpoint.provider.max_reply_bytes, on_delta, told)
        work = Work(self._endpoint, request, exchange, progress)
        try:
            work.create(body)
        except Broken as broken:
            if not self._background or progress.operation_id is None or broken.for_good:
                raise work.error(broken.failure) from broken
            work.go_on()
        return work.reply()

    def ask(self, lost: Lost, *, exchange: Exchange, on_delta: Callable[[str], None] | None = None) -> Reply:
        """See base.Adapter.ask."""
        if lost.operation_id is None:
            raise NothingFound
        progress = Progress(self._endpoint.provider.max_reply_bytes, on_delta, operation_id=lost.operation_id)
        work = Work(self._endpoint, lost.request, exchange, progress)
        try:
            work.wait()
        except Broken as broken:
            if broken.status == 404:
                raise NothingFound from broken
            raise work.error(unasked(broken)) from broken
        try:
            return work.reply()
        except ProviderError as error:
            if error.failure.error_class is ErrorClass.GATE:
                # The account stopped this response, which stays so; whether it still stops others, a new one will tell.
                error.failure = replace(error.failure, error_class=ErrorClass.TRANSIENT, refused=False)
            raise

    def cancel(self, operation_id: str, *, exchange: Exchange) -> bool | None:
        """See base.Adapter.cancel. A response that was final before has stopped as well."""
        if not self._background:
            return None
        try:
            with self._endpoint.send("POST", f"{path_of(operation_id)}/cancel", exchange=exchange) as reply:
                if reply.status != 200:
                    return False
                response = reply_json.parse(reply.body().decode("utf-8-sig", "replace"))
        except (NotSent, TransportFailure, ReplyTooLarge, ValueError):
            return False
        status = response.get("status") if isinstance(response, dict) else None
        return isinstance(status, str) and status in FINAL_STATUSES
