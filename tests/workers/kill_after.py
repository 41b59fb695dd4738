"""`aijobs work`, whose first worker kills itself with -9 right after one step of a job.

Usage: python -m tests.workers.kill_after STEP MARKER_FILE. The file is made by the one that dies, so that the worker
which replaces it goes on as usual.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from aijobs.cli import main
from aijobs.providers import connections
from workers import call, claimer, writer

STEPS = ("claim", "connect", "intend", "send", "name", "answer", "record", "accept")


def die(marker: str) -> None:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def after(owner: Any, name: str, marker: str, *, only_if: Callable[[Any], bool] = lambda result: True) -> None:
    """Die right after owner.name has returned."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if only_if(result):
            die(marker)
        return result

    setattr(owner, name, wrapped)


def before(owner: Any, name: str, marker: str) -> None:
    """Die right before owner.name would run."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        die(marker)
        return original(*arguments, **options)

    setattr(owner, name, wrapped)


def arm(step: str, marker: str) -> None:
    match step:
        case "claim":
            after(claimer.claims, "claim", marker, only_if=lambda found: bool(found.claims))
        case "connect":
            before(call.Call, "before_send", marker)
        case "intend":
            after(writer.Writer, "mark_sent", marker)
        case "send":
            before(connections._Tracked, "getresponse", marker)
        case "name":
            after(writer.Writer, "note_operation", marker)
        case "answer":
            before(call.Call, "succeeded", marker)
        case "record":
            after(writer.Writer, "finish_call", marker)
        case "accept":
            after(writer.Writer, "accept", marker)
        case _:
            raise SystemExit(f"no step {step!r}; steps are {', '.join(STEPS)}")


if __name__ == "__main__":
    arm(sys.argv[1], sys.argv[2])
    sys.argv[1:] = ["work"]
    main()
