"""`aijobs work`, in whose first worker one thread breaks: python -m tests.workers.break_thread THREAD MARKER_FILE."""

from __future__ import annotations

import os
import sys
from typing import Any

from aijobs.cli import main
from workers import heartbeat, reaper, writer

OWNERS: dict[str, tuple[Any, str]] = {
    "heartbeat": (heartbeat.Heartbeat, "_learn"),
    "writer": (writer.Writer, "_write"),
    "reaper": (reaper.Reaper, "run_once"),
}

if __name__ == "__main__":
    owner, name = OWNERS[sys.argv[1]]
    marker, original = sys.argv[2], getattr(owner, name)

    def break_once(*arguments: Any, **options: Any) -> Any:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return original(*arguments, **options)
        raise RuntimeError("broken on purpose")

    setattr(owner, name, break_once)
    sys.argv[1:] = ["work"]
    main()
