"""Ids carry the time they were made and sort by it."""

from __future__ import annotations

import os
import uuid

import pytest

from aijobs.domain.uuid7 import uuid7


def test_the_example_of_the_standard() -> None:
    assert uuid7(0x017F22E279B0, bytes.fromhex("0cc318c4dc0c0c07398f")) == uuid.UUID(
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    )


def test_version_and_variant_hold_for_any_bytes() -> None:
    for random in (bytes(10), b"\xff" * 10, os.urandom(10)):
        made = uuid7(1_700_000_000_000, random)
        assert made.version == 7
        assert made.variant == uuid.RFC_4122
        assert made.int >> 80 == 1_700_000_000_000


def test_later_ids_sort_after_earlier_ones() -> None:
    assert uuid7(2**40, b"\xff" * 10) < uuid7(2**40 + 1, bytes(10))


@pytest.mark.parametrize(("milliseconds", "random"), [(-1, bytes(10)), (1 << 48, bytes(10)), (1, bytes(9))])
def test_what_does_not_fit_is_refused(milliseconds: int, random: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        uuid7(milliseconds, random)
