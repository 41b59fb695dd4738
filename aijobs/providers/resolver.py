"""Name resolution that can be abandoned.

The C library's resolver cannot be interrupted, so it runs in a thread of its own: at an abort the exchange goes on
without it, and the thread ends when the resolver does. How many may be left behind at once is bounded.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

from aijobs.providers.exchange import Exchange

# With this many resolutions under way, new ones fail at once instead of piling threads up behind a dead resolver.
MOST_AT_ONCE = 256

Address = tuple[Any, ...]


class _Slots:
    """Counts the resolutions under way in this process."""

    def __init__(self) -> None:
        self.free = threading.Semaphore(MOST_AT_ONCE)


_slots = _Slots()
os.register_at_fork(after_in_child=_slots.__init__)  # type: ignore[misc]


def resolve(exchange: Exchange, host: str, port: int, within_seconds: float) -> list[Address]:
    """The addresses of `host`, as socket.getaddrinfo gives them.

    Raises NotSent when the exchange is ended meanwhile, TimeoutError after `within_seconds`, and socket.gaierror.
    """
    exchange.phase = "resolving"
    exchange.check()
    with contextlib.suppress(socket.gaierror, UnicodeError):  # an address written out needs no resolver, and no thread
        return list(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST))
    free = _slots.free
    if not free.acquire(blocking=False):
        raise TimeoutError("too many name resolutions under way")
    settled = threading.Event()
    outcome: list[list[Address] | OSError] = []

    def look_up() -> None:
        try:
            outcome.append(list(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)))
        except OSError as error:
            outcome.append(error)
        except UnicodeError as error:  # a label that no host name may have
            outcome.append(socket.gaierror(socket.EAI_NONAME, str(error)))
        finally:
            free.release()
            settled.set()

    try:
        threading.Thread(target=look_up, name="resolver", daemon=True).start()
    except RuntimeError as error:  # the system gives no more threads
        free.release()
        raise TimeoutError("no thread for a name resolution") from error
    exchange.wait_for(settled, within_seconds)
    if not outcome:
        raise TimeoutError("the host's name was not resolved in time")
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    return outcome[0]
