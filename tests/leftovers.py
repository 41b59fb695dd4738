"""Finding the processes that a test session started and did not end."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

_MARK = "AIJOBS_TEST_SESSION"
# Processes that were told to end just before the session did may take a moment to be gone.
_GRACE_SECONDS = 5.0


def mark_this_session() -> None:
    """Put a mark into the environment, which every program that is started from here on inherits."""
    os.environ[_MARK] = uuid.uuid4().hex


def found() -> list[str]:
    """A line for each process of this session that does not end within the grace; none where there is no /proc."""
    give_up_at = time.monotonic() + _GRACE_SECONDS
    while (left := _running()) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    return left


def _running() -> list[str]:
    mark = f"{_MARK}={os.environ[_MARK]}".encode()
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            ours = int(parent) == os.getpid() or mark in (folder / "environ").read_bytes().split(b"\0")
            if ours and state != "Z":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                left.append(f"{folder.name} {command.strip()}")
        except (OSError, ValueError):
            continue  # it ended while we looked, or is another user's
    return left
