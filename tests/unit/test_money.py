"""Prices, and what calls cost by them: whole micro-units, and nothing that is not known is called 0."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from aijobs.domain.failures import Usage
from aijobs.domain.money import UNKNOWN, Cost, Price, cost_of, estimated_tokens, micros
from aijobs.domain.price_tables import ListedPrice, PriceTableError, from_litellm, from_own

PRICE = Price(input_micros=3_000_000, output_micros=15_000_000, cached_micros=300_000, cache_write_micros=3_750_000)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(1, 0), 3),
        (Usage(0, 1), 15),
        (Usage(1000, 100), 4500),
        (Usage(1000, 100, cached_tokens=400), 3420),
        (Usage(1000, 100, cached_tokens=400, cache_write_tokens=100), 3495),
        (Usage(10, 5, cached_tokens=99), 78),  # more cached than read makes no sense, and costs no less than nothing
        (Usage(0, 0), 0),
    ],
)
def test_each_sort_of_token_has_its_price(usage: Usage, expected: int) -> None:
    assert micros(PRICE, usage) == expected


def test_a_cost_is_rounded_up_and_a_request_has_its_fee() -> None:
    cheap = Price(input_micros=1, output_micros=1, request_micros=7)
    assert micros(cheap, Usage(1, 0)) == 8
    assert micros(cheap, Usage(0, 0)) == 7


def test_reasoning_costs_as_output_unless_it_has_a_price_of_its_own() -> None:
    usage = Usage(0, 10, reasoning_tokens=4)
    assert micros(Price(input_micros=0, output_micros=1_000_000), usage) == 10
    assert micros(Price(input_micros=0, output_micros=1_000_000, reasoning_micros=3_000_000), usage) == 18


@pytest.mark.parametrize(
    ("price", "usage", "seen", "expected"),
    [
        (PRICE, Usage(1000, 100), None, Cost(4500, "reported")),
        (PRICE, None, Usage(1000, 100), Cost(4500, "estimated")),
        (PRICE, Usage(1000, None), Usage(5, 100), Cost(4500, "estimated")),
        (PRICE, Usage(1000, 1), None, Cost(3015, "reported")),
        (PRICE, Usage(1000, None), None, UNKNOWN),
        (PRICE, None, None, UNKNOWN),
        (None, Usage(1000, 100), Usage(1, 1), UNKNOWN),
    ],
)
def test_what_was_reported_comes_first_then_what_was_seen(
    price: Price | None, usage: Usage | None, seen: Usage | None, expected: Cost
) -> None:
    assert cost_of(price, usage, seen) == expected


def test_an_estimate_is_never_nothing() -> None:
    assert [estimated_tokens(characters) for characters in (0, 1, 4, 5)] == [1, 1, 1, 2]


LITELLM = """{
 "sample_spec": {"litellm_provider": "one of ...", "input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
 "gpt-4o-mini": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1.5e-07,
   "output_cost_per_token": 6e-07, "cache_read_input_token_cost": 7.5e-08, "max_output_tokens": 16384},
 "openai/gpt-x": {"litellm_provider": "openai", "input_cost_per_token": 0.00001, "output_cost_per_token": 3e-05,
   "output_cost_per_reasoning_token": 4e-05, "cache_creation_input_token_cost": 1.25e-05},
 "dall-e-3": {"litellm_provider": "openai", "mode": "image_generation", "input_cost_per_pixel": 3.81469e-08},
 "claude": {"litellm_provider": "anthropic", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}
}"""


def litellm(text: str = LITELLM, **given: str) -> list[ListedPrice]:
    return list(
        from_litellm(json.loads(text, parse_float=Decimal), **({"source": "openai", "provider": "main"} | given))
    )


def test_litellms_table_is_read_exactly_for_one_provider() -> None:
    assert litellm() == [
        ListedPrice(
            provider="main",
            model="gpt-4o-mini",
            input_micros=150_000,
            output_micros=600_000,
            cached_micros=75_000,
            max_output_tokens=16384,
        ),
        ListedPrice(
            provider="main",
            model="gpt-x",
            input_micros=10_000_000,
            output_micros=30_000_000,
            reasoning_micros=40_000_000,
            cache_write_micros=12_500_000,
        ),
    ]
    assert litellm(source="nobody") == []


def test_our_own_file_is_read_exactly() -> None:
    entry = {
        "provider": "p",
        "model": "m",
        "input": "0.15",
        "output": 2,
        "cached": "0.075",
        "per_request": "0.01",
        "valid_from": "2026-01-01T00:00:00Z",
    }
    assert list(from_own({"prices": [entry]})) == [
        ListedPrice(
            provider="p",
            model="m",
            input_micros=150_000,
            output_micros=2_000_000,
            cached_micros=75_000,
            request_micros=10_000,
            valid_from="2026-01-01T00:00:00Z",
        )
    ]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "must hold"),
        ({"prices": []}, "must hold"),
        ({"prices": [{"provider": "p", "model": "m", "input": "1"}]}, "output is missing"),
        ({"prices": [{"provider": "p", "model": "m", "input": "1", "output": "x"}]}, "is no amount"),
        ({"prices": [{"provider": "p", "model": "m", "input": "-1", "output": "1"}]}, "is no amount"),
        ({"prices": [{"provider": "p", "model": "m", "input": "NaN", "output": "1"}]}, "is no amount"),
        ({"prices": [{"provider": "p", "model": "m", "input": 0.1, "output": "1"}]}, "as a text"),
        (
            {"prices": [{"provider": "p", "model": "m", "input": "1", "output": "1", "outptu": "1"}]},
            "unknown key 'outptu'",
        ),
    ],
)
def test_what_cannot_be_a_price_is_named(document: dict[str, Any], words: str) -> None:
    with pytest.raises(PriceTableError, match=words):
        list(from_own(document))
