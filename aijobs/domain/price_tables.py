"""Price tables as people share them, read into our own: micro-units per million tokens, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from aijobs.domain.money import MILLION

# In litellm's table, by our names: dollars per token, or per request.
_LITELLM = {
    "input_micros": "input_cost_per_token",
    "cached_micros": "cache_read_input_token_cost",
    "cache_write_micros": "cache_creation_input_token_cost",
    "output_micros": "output_cost_per_token",
    "reasoning_micros": "output_cost_per_reasoning_token",
}
# In our own file: dollars per million tokens.
_OWN = {
    "input_micros": "input",
    "cached_micros": "cached",
    "cache_write_micros": "cache_write",
    "output_micros": "output",
    "reasoning_micros": "reasoning",
}
_OWN_KEYS = frozenset(_OWN.values()) | {
    "provider",
    "model",
    "per_request",
    "max_output_tokens",
    "valid_from",
    "valid_until",
}


class PriceTableError(ValueError):
    """The table cannot be read. The text names the entry and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """One entry of a table. Amounts as in money.Price; `valid_from` None means from now on."""

    provider: str
    model: str
    input_micros: int
    output_micros: int
    cached_micros: int | None = None
    cache_write_micros: int | None = None
    reasoning_micros: int | None = None
    request_micros: int = 0
    max_output_tokens: int | None = None
    valid_from: str | None = None
    valid_until: str | None = None


def from_litellm(document: Mapping[str, Any], *, source: str, provider: str) -> Iterator[ListedPrice]:
    """The chat prices of one provider of litellm's model_prices_and_context_window.json, under our provider's name.

    `source` is its `litellm_provider`. A model's name loses the prefix "source/". Entries without a price per token
    (images, audio) are left out. Numbers must have been read as Decimal, or as int. Raises PriceTableError.
    """
    for name, entry in document.items():
        if not isinstance(entry, Mapping) or entry.get("litellm_provider") != source:
            continue
        if "input_cost_per_token" not in entry or "output_cost_per_token" not in entry:
            continue
        amounts: dict[str, Any] = {
            ours: _per_million(entry[theirs], MILLION, name)
            for ours, theirs in _LITELLM.items()
            if entry.get(theirs) is not None
        }
        most = entry.get("max_output_tokens")
        yield ListedPrice(
            provider=provider,
            model=name.removeprefix(f"{source}/"),
            request_micros=_whole(entry.get("input_cost_per_request") or 0, MILLION, name),
            max_output_tokens=most if type(most) is int and most > 0 else None,
            **amounts,
        )


def from_own(document: Mapping[str, Any]) -> Iterator[ListedPrice]:
    """The entries `[[prices]]` of our own file: provider, model, dollars per million tokens as texts or whole numbers.

    Raises PriceTableError.
    """
    entries = document.get("prices")
    if not isinstance(entries, list) or not entries or document.keys() != {"prices"}:
        raise PriceTableError("the file must hold [[prices]] and nothing else")
    for number, entry in enumerate(entries, 1):
        where = f"[[prices]] number {number}"
        unknown = entry.keys() - _OWN_KEYS
        if unknown:
            raise PriceTableError(
                f"{where}: unknown key {sorted(unknown)[0]!r}; known are: {', '.join(sorted(_OWN_KEYS))}"
            )
        missing = {"provider", "model", "input", "output"} - entry.keys()
        if missing:
            raise PriceTableError(f"{where}: {sorted(missing)[0]} is missing")
        amounts: dict[str, Any] = {
            ours: _per_million(entry[theirs], 1, where) for ours, theirs in _OWN.items() if theirs in entry
        }
        yield ListedPrice(
            provider=str(entry["provider"]),
            model=str(entry["model"]),
            request_micros=_whole(entry.get("per_request", 0), MILLION, where),
            max_output_tokens=entry.get("max_output_tokens"),
            valid_from=_moment(entry.get("valid_from")),
            valid_until=_moment(entry.get("valid_until")),
            **amounts,
        )


def _per_million(dollars: Any, tokens: int, where: str) -> int:
    """Micro-units per million tokens, from dollars for `1 / tokens` of a million."""
    return _whole(dollars, MILLION * tokens, where)


def _whole(dollars: Any, factor: int, where: str) -> int:
    """The amount times the factor, if that is a whole number from 0 on."""
    if isinstance(dollars, float | bool):
        raise PriceTableError(f"{where}: write the amount {dollars} as a text, so that it is exact")
    try:
        amount = Decimal(dollars) * factor
    except (InvalidOperation, TypeError, ValueError):
        raise PriceTableError(f"{where}: {dollars!r} is no amount") from None
    if not amount.is_finite() or amount < 0:
        raise PriceTableError(f"{where}: {dollars!r} is no amount")
    # Tables have prices like 1.5e-7 that were divided once too often: a millionth of a micro-unit is nobody's money.
    return int(amount.to_integral_value())


def _moment(value: Any) -> str | None:
    return None if value is None else str(value)
