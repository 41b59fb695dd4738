"""The sign of life that a worker process gives its supervisor."""

from __future__ import annotations

import os
import threading
import time

PULSE_SECONDS = 0.5


def start_pulse(pulse_fd: int) -> None:
    """Write a byte to the supervisor each half second, from a thread that does nothing else.

    It stops when the process is stopped, and when something holds the interpreter's lock: both are what the supervisor
    wants to know. A busy database or provider does not stop it.
    """
    threading.Thread(target=_beat, args=(pulse_fd,), name="pulse", daemon=True).start()


def _beat(pulse_fd: int) -> None:
    while True:
        try:
            os.write(pulse_fd, b".")
        except BlockingIOError:
            pass  # the supervisor is paused and its pipe full
        except OSError:
            return  # the supervisor is gone; the main thread sees that by itself
        time.sleep(PULSE_SECONDS)
