"""One HTTP exchange with a provider: how far it got, and how to end it from another thread.

`requests` tells neither: a reset while connecting and one after the request was received raise the same exception, and
closing a response does not wake a thread that is blocked in it. So each exchange keeps its own phase, and a duplicate
of its socket's descriptor: shutting that down ends every blocking call on the connection, in any phase, TLS and proxies
included, without the risk that the number has meanwhile been given to another file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from aijobs.clock import elapsed
from aijobs.errors import NotSent

# In these phases the provider cannot hold a complete request: it was not, or not completely, written to the connection.
UNSENT_PHASES = frozenset({"new", "resolving", "connecting", "connected", "sending"})


class AddressRefused(Exception):
    """Raised by an exchange's `admit`: none of what a name leads to is to be connected to."""


class Exchange:
    """The state of one exchange: phases are new, resolving, connecting, connected, sending, sent, headers.

    `connecting` includes the proxy's CONNECT and TLS. `before_send` is called once, when the connection is up and
    before the first byte of the request; whatever it raises goes to the caller, and nothing is sent. `deadline_seconds`
    bounds the whole exchange from its creation on. An exchange serves one call. `admit` is shown the addresses before
    one of them is connected to, and raises AddressRefused.
    """

    def __init__(
        self,
        deadline_seconds: float,
        before_send: Callable[[], None],
        *,
        admit: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self.admit = admit
        self.phase = "new"
        self.deadline_at = elapsed() + deadline_seconds
        self._before_send = before_send
        # Reentrant: a look at the deadline, taken while a connection is begun, may end the exchange.
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._reason: str | None = None
        self._sent_at: float | None = None
        self._first_byte_at: float | None = None
        self._waited_for: threading.Event | None = None
        self._followed_by: Exchange | None = None

    @property
    def reason(self) -> str | None:
        """Why the exchange was ended from outside, or None."""
        return self._reason

    @property
    def sent_possible(self) -> bool:
        """Whether the provider may hold the whole request."""
        return self.phase not in UNSENT_PHASES

    @property
    def first_byte_seconds(self) -> float | None:
        """From the first byte sent to the end of the reply's headers; None while they have not come."""
        if self._sent_at is None or self._first_byte_at is None:
            return None
        return self._first_byte_at - self._sent_at

    def abort(self, reason: str) -> None:
        """End the exchange now. Any thread, any time, any number of times; the first reason stays."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
            if self._socket is not None:
                with contextlib.suppress(OSError):  # not connected any more: `check` sees the reason
                    self._socket.shutdown(socket.SHUT_RDWR)
            if self._waited_for is not None:
                self._waited_for.set()
            follower = self._followed_by
        if follower is not None:
            follower.abort(reason)

    def follow_up(self) -> Exchange:
        """Another exchange of the same call, such as to fetch what the first one left at the provider.

        It needs no leave to send, has the same deadline, and is ended whenever this one is. One at a time.
        """
        follower = Exchange(self.deadline_at - elapsed(), lambda: None)
        with self._lock:
            self._followed_by = follower
            reason = self._reason
        if reason is not None:
            follower.abort(reason)
        return follower

    def pause(self, seconds: float) -> None:
        """Wait, for so long at most, until the deadline, or until the exchange is ended: `reason` then says so."""
        ended = threading.Event()
        with self._lock:
            if self._reason is not None:
                return
            self._waited_for = ended
        ended.wait(max(0.0, min(seconds, self.deadline_at - elapsed())))
        with self._lock:
            self._waited_for = None
        if elapsed() >= self.deadline_at:
            self.abort("deadline")

    def check(self) -> None:
        """Raise NotSent if the exchange was ended, or is past its deadline, while nothing had been sent."""
        if self._reason is None and elapsed() >= self.deadline_at:
            self.abort("deadline")  # the watchdog may be a moment late; what has not begun must not begin
        if self._reason is not None and not self.sent_possible:
            raise NotSent(self._reason)

    def wait_for(self, event: threading.Event, seconds: float) -> None:
        """Wait for the event, for so long at most. Raises NotSent as soon as the exchange is ended."""
        with self._lock:
            self.check()
            self._waited_for = event
        event.wait(max(0.0, seconds))
        with self._lock:
            self._waited_for = None
        self.check()

    def dial(self, connection: socket.socket, address: Any, seconds: float) -> None:
        """Connect the socket. Raises NotSent when the exchange is ended meanwhile, else OSError as `connect` does.

        A connection is begun under the lock: an abort then comes either before, and is seen by the check, or finds a
        connection under way, which a shutdown ends. One in between would be without effect until the timeout.
        """
        connection.setblocking(False)
        with self._lock:
            self._drop()
            self.check()
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
            problem = connection.connect_ex(address)
        if problem == errno.EINPROGRESS:
            problem = _settled(connection, seconds)
        self.check()
        if problem:
            raise OSError(problem, os.strerror(problem))

    def detach(self) -> None:
        """Close the duplicate: while it is open the other side does not see the connection's end."""
        with self._lock:
            self._drop()

    def connected(self) -> None:
        self.phase = "connected"
        self.check()

    def about_to_send(self) -> None:
        """Ask for leave to send, then check once more: the leave may have taken long."""
        self.check()
        self._before_send()
        self.check()
        self._sent_at = elapsed()
        self.phase = "sending"

    def got_headers(self) -> None:
        self._first_byte_at = elapsed()
        self.phase = "headers"

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _settled(connection: socket.socket, seconds: float) -> int:
    """The error number that a connection under way ends with, 0 if it stands."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    if not poll.poll(max(0.0, seconds) * 1000):
        return errno.ETIMEDOUT
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
