"""What signals mean to a worker process. Handlers set a flag and nothing else.

SIGTERM and SIGUSR1 both mean drain: SIGTERM is for a person or an init system that means this one process, SIGUSR1 is
what the supervisor sends. They differ because a signal to the whole process group arrives twice, directly and through
the supervisor, and the second must not be taken for a second request. SIGUSR2 means hurry: the supervisor was told
twice.
SIGINT is ignored: on Ctrl-C the terminal tells the whole group, and the supervisor decides.
"""

from __future__ import annotations

import signal
from types import FrameType

DRAIN = signal.SIGUSR1
HURRY = signal.SIGUSR2


class ChildSignals:
    """The flags of one worker process. A byte is written to `wake_fd` for each signal, so that a wait ends."""

    def __init__(self, wake_fd: int) -> None:
        self.draining = False
        self.hurry = False
        signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._drain)
        signal.signal(DRAIN, self._drain)
        signal.signal(HURRY, self._hurry)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # The supervisor forks with these blocked, so that none is lost or fatal before there are handlers.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, DRAIN, HURRY))

    def _drain(self, number: int, frame: FrameType | None) -> None:
        self.draining = True

    def _hurry(self, number: int, frame: FrameType | None) -> None:
        self.draining = True
        self.hurry = True
