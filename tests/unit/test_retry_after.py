from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests.structures import CaseInsensitiveDict

from aijobs.retry_after import MAX_SECONDS, retry_after_seconds

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def read(**headers: str) -> float | None:
    return retry_after_seconds(
        CaseInsensitiveDict({name.replace("_", "-"): text for name, text in headers.items()}), NOW
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 2.0),
        (" 2 ", 2.0),
        ("1.5", 1.5),
        ("999999999", MAX_SECONDS),
        ("99999999999999999999", MAX_SECONDS),
        ("1e999", MAX_SECONDS),
        ("0", None),
        ("-5", None),
        ("-3", None),
        ("", None),
        ("abc", None),
        ("NaN", None),
        ("-1e999", None),
        ("2, 5", None),
        ("2026", MAX_SECONDS),
        ("Tue, 01 Dec 2026 12:00:05 GMT", 5.0),
        ("Tue, 01 Dec 2026 12:00:05", 5.0),
        ("Tue, 01 Dec 2026 13:00:05 +0100", 5.0),
        ("Tuesday, 01-Dec-26 12:00:05 GMT", 5.0),
        ("Tue Dec  1 12:00:05 2026", 5.0),
        ("Tue, 01 Dec 2026 11:59:00 GMT", None),
        ("Fri, 01 Jan 9999 00:00:00 GMT", MAX_SECONDS),
        ("Fri, 01 Jan 99999 00:00:00 GMT", None),
        ("Tue, 99 Dec 2026 12:00:05 GMT", None),
        ("12:00:05", None),
        (":", None),
    ],
)
def test_each_form(text: str, seconds: float | None) -> None:
    assert read(Retry_After=text) == seconds


def test_milliseconds_come_first_if_they_make_sense() -> None:
    assert read(retry_after_ms="1500", Retry_After="9") == 1.5
    assert read(Retry_After_Ms="1500") == 1.5
    for nonsense in ("soon", "-1", "NaN", ""):
        assert read(retry_after_ms=nonsense, Retry_After="9") == 9.0
    assert read() is None


@given(st.text() | st.from_regex(r"(Mon, )?\d{1,3} [A-Z][a-z]{2} \d{1,6} \d\d:\d\d:\d\d( [+-]\d{1,6}| GMT)?"))
def test_no_text_breaks_it_and_none_exceeds_the_bounds(text: str) -> None:
    for name in ("Retry_After", "retry_after_ms"):
        seconds = read(**{name: text})
        assert seconds is None or (0 < seconds <= MAX_SECONDS and math.isfinite(seconds))
