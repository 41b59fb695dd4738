"""gunicorn's threaded worker, so that clients that do nothing cost nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import Any

from gunicorn.workers import gthread
from gunicorn.workers.gthread import ThreadWorker

# After the last answer on a connection the client gets this long to take it and hang up, and may send this much more: a
# proxy that is still sending a body of a few MiB when it is reset takes us for broken, and our answer is lost.
LINGER_SECONDS = 1.0
LINGER_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 65_536


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Answers as gthread does. Two things differ, because each let a few idle clients stop a whole process:

    A connection on which nothing has arrived waits in the poller from the start; gthread lets it have a thread for five
    seconds. And a connection that ends is given its time to hang up here, in its own thread; gthread does that in the
    thread that accepts connections, two seconds for each client that does not hang up.
    """

    def handle(self, conn: Any) -> Any:
        if not conn.initialized and not conn.wait_for_data(0.0):
            return gthread._DEFER
        kept = super().handle(conn)
        if not kept:
            _linger(conn.sock)
        return kept

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Told to stop: streams and waits would hold it for as long as they are let. Their clients come again."""
        # It may be told so while it is still loading the application.
        service = getattr(getattr(self, "wsgi", None), "extensions", {}).get("aijobs")
        if service is not None:
            service.fanout.leave()
        super().handle_exit(sig, frame)


def _linger(connection: socket.socket) -> None:
    """Let the client read the answer: closing at once, with bytes unread, would reset the connection under it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        end_at = time.monotonic() + LINGER_SECONDS
        taken = 0
        while taken < LINGER_BYTES and (remaining := end_at - time.monotonic()) > 0:
            connection.settimeout(remaining)
            received = len(connection.recv(_PIECE_BYTES))
            if not received:
                return
            taken += received
    with contextlib.suppress(OSError):
        # The client has had its time. Reset it, or it could go on trying to send for a minute; and have gunicorn's own
        # wait at the close end at once.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
