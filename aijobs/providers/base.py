"""What every provider's adapter offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from aijobs.domain.failures import Usage
from aijobs.providers.exchange import Exchange

# How a provider can be asked what became of a call whose answer was lost. By `operation`: it has told an id, by which
# the answer can be fetched. By `key`: it lists what it did under a key of ours. By `repeat`: the same request with the
# same key is answered from what it did before, and not done again.
AskBy = Literal["operation", "key", "repeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete, usable answer. `usage` holds what the provider reported, which may be nothing.

    `value` is the answer of a provider that gives JSON and not text.
    """

    text: str
    finish_reason: str | None
    model: str | None
    usage: Usage
    http_status: int
    provider_request_id: str | None = None
    provider_operation_id: str | None = None
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a job's step. `body` is in the provider's own terms.

    `client_request_id` names this one request, for the provider's support. `dedupe_key` is the same for all requests
    that must be done once, in whichever attempt: 64 hexadecimal digits.
    """

    body: Mapping[str, Any]
    client_request_id: str
    dedupe_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A request that was sent, and whose answer was lost: what the provider can be asked by."""

    request: Request
    operation_id: str | None
    age_seconds: float  # since it was sent


class NothingFound(Exception):
    """The provider was asked and cannot say what became of the call. That is no proof that nothing was done."""


class Adapter(Protocol):
    """One provider's way of being asked. Stateless: one adapter serves all threads of a process."""

    @property
    def ask_by(self) -> AskBy | None:
        """How this provider, as configured, can be asked about a lost call; None if it cannot."""
        ...

    def chat_body(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """A chat request in the provider's own terms.

        `wanted` has `model` and `messages` (role and content), and may have max_tokens, temperature, top_p, stop, seed:
        those that config_file.CHAT_OPTIONS has for the adapter.
        """
        ...

    def call(
        self,
        request: Request,
        *,
        exchange: Exchange,
        on_delta: Callable[[str], None] | None = None,
        on_operation: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask once. `on_delta` is told each piece of text.

        `on_operation` is told the provider's id of the work as soon as it is known, where it can be asked by it; it
        returns when the id is stored, and what it raises is passed on. Raises ProviderError, or NotSent when the
        exchange was ended before anything could have been received; lets through what the exchange's `before_send`
        raises. Never repeats a request.
        """
        ...

    def ask(self, lost: Lost, *, exchange: Exchange, on_delta: Callable[[str], None] | None = None) -> Reply:
        """The answer to a lost request, waiting for it until the exchange's deadline.

        Only where `ask_by` is operation or key. Nothing is bought by asking. Raises NothingFound; ProviderError with
        what the provider says became of the call (permanent, transient, unknown); and ProviderError with a failure that
        is `askable` when it could not be asked now, or has not finished: ask again later.
        """
        ...

    def cancel(self, operation_id: str, *, exchange: Exchange) -> bool | None:
        """Ask the provider to stop. Raises nothing.

        True: it says that it has; False: it did not, or could not be asked; None: it has no way to.
        """
        ...
