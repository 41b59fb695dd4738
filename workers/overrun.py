"""Handlers that do not stop when their time is up: told, then interrupted, then given up.

A handler is a stranger's code. It may ignore its deadline, catch every exception, or sit in a call that never returns,
and must harm no other job by it. Its slot is freed and its job settled; a process that has given up a handler ends when
its other jobs are done, because the thread goes on.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable

from aijobs.clock import elapsed
from aijobs.errors import HandlerOverran
from workers.endings import about
from workers.held import HeldClaim, Holdings

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
# After its deadline, or its abort, a handler has so long to notice by itself; and so long before it is given up.
NOTICE_SECONDS = 5.0
GIVE_UP_SECONDS = 12.0


class Overseer(threading.Thread):
    """Looks after the handlers of a process. `give_up` settles the job of one, and frees its slot."""

    def __init__(self, holdings: Holdings, give_up: Callable[[HeldClaim, HandlerOverran], None]) -> None:
        super().__init__(name="overseer", daemon=True)
        self._holdings = holdings
        self._give_up = give_up
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            for held in self._holdings.all():
                self._look_after(held)

    def _look_after(self, held: HeldClaim) -> None:
        late = elapsed() - held.stop_at
        if late >= GIVE_UP_SECONDS:
            if held.begin_to_settle(unless_inside=True):
                log.error(
                    "a handler did not stop and is given up; the process will be replaced", extra=about(held.claim)
                )
                self._give_up(held, HandlerOverran("The handler did not stop at its deadline."))
        elif late >= NOTICE_SECONDS:
            held.interrupt(_raise_in)


def _raise_in(thread_id: int) -> None:
    """Have the thread raise HandlerOverran at its next instruction of Python; it does not interrupt a call into C."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(HandlerOverran))
