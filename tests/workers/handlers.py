"""Handlers that a test's configuration names."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import signal
import time
from typing import Any

from aijobs.errors import OutputRejected, TransientError


def noop(attempt: Any) -> dict[str, int]:
    return {}


def crash(attempt: Any) -> None:
    """Take the whole process down, as a broken C extension would."""
    os.kill(os.getpid(), signal.SIGKILL)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def stubborn(attempt: Any) -> dict[str, Any]:
    """Does not stop: computing, sleeping, or catching whatever comes."""
    how = attempt.payload["how"]
    if attempt.number > attempt.payload.get("times", 1):
        return {"attempt": attempt.number}
    if how == "sleep":
        time.sleep(3600)
    while how == "compute":
        sum(range(1000))
    while how == "ignore":
        with contextlib.suppress(BaseException):
            time.sleep(0.01)
    return {"stopped": True}


def steps(attempt: Any) -> dict[str, Any]:
    """Three paid calls, one after the other, and what the payload says in between."""
    payload = attempt.payload
    texts = []
    for number, prompt in enumerate(payload["prompts"], 1):
        texts.append(attempt.chat(f"step{number}", messages=[{"role": "user", "content": prompt}]).text)
        attempt.emit(f"{number};")
        attempt.progress({"done": number})
    if attempt.number <= payload.get("reject", 0):
        raise OutputRejected("not good enough", step="step1")
    if attempt.number <= payload.get("transient", 0):
        raise TransientError("later", retry_after_seconds=0.1)
    return {"texts": texts, "attempt": attempt.number}


def swallow(attempt: Any) -> dict[str, Any]:
    """Catches what a call raises, and then fails for a reason of its own."""
    try:
        attempt.chat("step", messages=[{"role": "user", "content": attempt.payload["prompt"]}])
    except Exception:  # noqa: BLE001 - what the test is about
        raise ValueError("another story") from None
    return {}


def isolated(attempt: Any) -> dict[str, Any]:
    """What only a process of its own survives."""
    how = attempt.payload["how"]
    if attempt.number <= attempt.payload.get("times", 1):
        if how == "exit":
            os._exit(7)
        if how == "memory":
            hoard = bytearray(1 << 20)
            while True:
                hoard += hoard
        if how == "hang":
            time.sleep(3600)
    return {"pid": os.getpid()}


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


def fickle(attempt: Any) -> dict[str, Any]:
    """A call that is another one in each attempt; or one that the second attempt does not come to."""
    prompt = attempt.payload["prompt"]
    if attempt.number > 1 and attempt.payload["how"] == "other":
        prompt += f" attempt {attempt.number}"
    if attempt.number == 2 and attempt.payload["how"] == "raise":
        raise TransientError("not now", retry_after_seconds=0.1)
    return {"text": attempt.chat("step", messages=[{"role": "user", "content": prompt}]).text}
