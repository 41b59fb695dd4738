"""The one local clock. It measures durations only: which moment it is, the database says."""

from __future__ import annotations

import time

# CLOCK_MONOTONIC stands still while a machine sleeps, so that a lease would seem alive that ran out hours ago.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since some fixed moment, suspended time included. Never steps, whatever happens to the wall clock."""
    return time.clock_gettime(_CLOCK)
