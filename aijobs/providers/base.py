"""What every provider's adapter offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aijobs.domain.failures import Usage
from aijobs.providers.exchange import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete, usable answer. `usage` holds what the provider reported, which may be nothing."""

    text: str
    finish_reason: str | None
    model: str | None
    usage: Usage
    http_status: int
    provider_request_id: str | None = None
    provider_operation_id: str | None = None


class Adapter(Protocol):
    """One provider's way of being asked. Stateless: one adapter serves all threads of a process."""

    def call(
        self,
        body: Mapping[str, Any],
        *,
        exchange: Exchange,
        client_request_id: str,
        on_delta: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask once. `body` is the request in the provider's own terms; `on_delta` is told each piece of text.

        Raises ProviderError, or NotSent when the exchange was ended before anything could have been received; lets
        through what the exchange's `before_send` raises. Never repeats a request.
        """
        ...
