"""Handlers that do nothing, so that what is measured is everything else."""

from __future__ import annotations

import time
from typing import Any


def noop(attempt: Any) -> dict[str, int]:
    return {}


def sleep(attempt: Any) -> dict[str, int]:
    """Stay in flight for payload.seconds."""
    time.sleep(attempt.payload["seconds"])
    return {}
