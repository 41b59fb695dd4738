"""Money in integer micro-units: what a call costs at a price. No floats anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aijobs.domain.failures import Usage

MILLION = 1_000_000
# The rule of thumb for English text. It is used only where a provider tells no tokens, and what it gives is marked.
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a provider asks, in micro-units per million tokens and per request.

    `cached_micros` and `cache_write_micros` None: as `input_micros`; `reasoning_micros` None: as `output_micros`.
    """

    input_micros: int
    output_micros: int
    cached_micros: int | None = None
    cache_write_micros: int | None = None
    reasoning_micros: int | None = None
    request_micros: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call cost. `micros` None is unknown, and never 0; `basis` is reported, estimated, unknown or none."""

    micros: int | None
    basis: str


NOTHING = Cost(0, "none")
UNKNOWN = Cost(None, "unknown")


def cost_of(price: Price | None, usage: Usage | None, seen: Usage | None = None) -> Cost:
    """The cost of a call by what its provider reported, else by what was seen of it.

    `seen` has estimates for whatever the report may lack; None says that nothing was seen, so that nothing is known
    beyond the report.
    """
    if price is None:
        return UNKNOWN
    reported = usage or Usage()
    if reported.input_tokens is not None and reported.output_tokens is not None:
        return Cost(micros(price, reported), "reported")
    if seen is None:
        return UNKNOWN
    filled = replace(
        reported,
        input_tokens=seen.input_tokens if reported.input_tokens is None else reported.input_tokens,
        output_tokens=max(seen.output_tokens or 0, reported.output_tokens or 0),
    )
    return Cost(micros(price, filled), "estimated")


def micros(price: Price, usage: Usage) -> int:
    """The cost of known tokens, rounded up to a whole micro-unit."""
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    cached = min(usage.cached_tokens or 0, read)
    cache_write = min(usage.cache_write_tokens or 0, read - cached)
    reasoning = min(usage.reasoning_tokens or 0, written)
    total = (
        (read - cached - cache_write) * price.input_micros
        + cached * _or(price.cached_micros, price.input_micros)
        + cache_write * _or(price.cache_write_micros, price.input_micros)
        + (written - reasoning) * price.output_micros
        + reasoning * _or(price.reasoning_micros, price.output_micros)
    )
    return price.request_micros + -(-total // MILLION)


def estimated_tokens(characters: int) -> int:
    """About how many tokens a text has; at least one."""
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


def _or(amount: int | None, otherwise: int) -> int:
    return otherwise if amount is None else amount
