"""A supervisor whose children do nothing but what a test asks: python -m tests.workers.supervised FOLDER MODE.

Each child writes its pid and worker id to FOLDER/children, each release the worker id to FOLDER/released.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from pathlib import Path

from workers.pulse import start_pulse
from workers.signals import ChildSignals
from workers.supervisor import Child, Supervisor

FOLDER, MODE = Path(sys.argv[1]), sys.argv[2]


def note(name: str, text: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(text + "\n")


def serve(child: Child) -> int:
    """Wait until told to drain, or until the supervisor is gone."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signals = ChildSignals(wake_write)
    if MODE != "silent":
        start_pulse(child.pulse_fd)
    pipes = [entry for entry in Path("/proc/self/fd").iterdir() if _is_pipe(entry)]
    note("children", f"{os.getpid()} {child.worker_id} {len(pipes)}")
    if MODE.startswith("exit"):
        return int(MODE.removeprefix("exit"))
    if MODE == "young":
        os.abort()
    while not signals.draining:
        ready, _, _ = select.select([wake_read, child.parent_fd], [], [])
        if child.parent_fd in ready:
            note("orphaned", str(os.getpid()))
            return 0
        os.read(wake_read, 100)
    if MODE == "deaf":
        time.sleep(3600)
    note("drained", str(os.getpid()))
    return 0


def _is_pipe(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("pipe:")
    except OSError:
        return False


def release(worker_id: str) -> None:
    note("released", worker_id)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    note("started", str(os.getpid()))
    sys.exit(Supervisor(processes=3, drain_seconds=1.0, hang_seconds=2.0, run_child=serve, release_dead=release).run())
