"""A job in backoff waits a bounded, jittered time, and never less than the other side asked for."""

from __future__ import annotations

import pytest

from aijobs.domain.backoff import MINIMUM_SECONDS, backoff_seconds


@pytest.mark.parametrize(("repeats", "ceiling"), [(0, 2.0), (1, 4.0), (3, 16.0), (7, 256.0), (8, 300.0), (500, 300.0)])
def test_full_jitter_fills_the_whole_range_up_to_a_doubling_capped_ceiling(repeats: int, ceiling: float) -> None:
    most = backoff_seconds(repeats=repeats, base_seconds=2.0, cap_seconds=300.0, jitter=0.999_999)
    half = backoff_seconds(repeats=repeats, base_seconds=2.0, cap_seconds=300.0, jitter=0.5)
    assert most == pytest.approx(ceiling, rel=1e-4)
    assert half == pytest.approx(ceiling / 2)


def test_the_luckiest_throw_is_still_not_immediate() -> None:
    assert backoff_seconds(repeats=0, base_seconds=2.0, cap_seconds=300.0, jitter=0.0) == MINIMUM_SECONDS


def test_a_wish_of_the_other_side_is_kept_and_spread_upwards_only() -> None:
    waits = [
        backoff_seconds(repeats=4, base_seconds=2.0, cap_seconds=300.0, jitter=j / 10, at_least_seconds=5.0)
        for j in range(10)
    ]
    assert min(waits) == 5.0
    assert max(waits) < 7.0
