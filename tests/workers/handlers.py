"""Handlers that a test's configuration names."""

from __future__ import annotations

import builtins
import json
import os
import signal
import time
from typing import Any


def noop(attempt: Any) -> dict[str, int]:
    return {}


def crash(attempt: Any) -> None:
    """Take the whole process down, as a broken C extension would."""
    os.kill(os.getpid(), signal.SIGKILL)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def odd(attempt: Any) -> Any:
    """Raise, return or do what the payload says."""
    payload = attempt.payload
    if "raise" in payload:
        raise {**vars(builtins), "Unprintable": Unprintable}[payload["raise"]]
    time.sleep(payload.get("sleep", 0))
    if "parse" in payload:
        end_at = time.monotonic() + payload["parse"]
        document = json.dumps([{"a": list(range(50))}] * 20_000)
        while time.monotonic() < end_at - 1:
            json.loads(document)
    return {"nan": float("nan"), "nul": {"text": "\0"}, "object": {"o": object()}}.get(payload.get("result"), {})
