"""How long another side asks to be left alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

# A longer wish is cut: who asks again is told again.
MAX_SECONDS = 900.0


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """The wish in seconds, above 0 and capped; None if there is none, or if it makes no sense.

    `retry-after-ms` comes before Retry-After, which may be seconds, a fraction, or any HTTP date. `now` is aware.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None and (exact := _bounded(milliseconds / 1000)) is not None:
        return exact
    text = headers.get("Retry-After")
    seconds = _number(text)
    return _bounded(seconds if seconds is not None else _until(text, now))


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _until(text: str | None, now: datetime) -> float | None:
    """Seconds until an HTTP date. A bare number that is no number of seconds must not be read as a year."""
    if text is None or ":" not in text:
        return None
    try:
        moment = parsedate_to_datetime(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - now).total_seconds()
    except (ValueError, OverflowError, IndexError, TypeError):  # all of them have been seen from the date parser
        return None


def _bounded(seconds: float | None) -> float | None:
    if seconds is None or math.isnan(seconds) or seconds <= 0:
        return None
    return min(seconds, MAX_SECONDS)
