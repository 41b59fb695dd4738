"""Whether this process could serve a request now."""

from __future__ import annotations

import threading

from aijobs.clock import elapsed
from aijobs.errors import AijobsError
from aijobs.store.db import connect
from aijobs.store.migrate import check_level

# Probes of several load balancers cost one look at the database each second, not one each.
REMEMBER_SECONDS = 1.0
REPLY_SECONDS = 2.0


class Readiness:
    """Asks the database over a connection of its own, so that a probe neither waits for the pool nor fills it."""

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self._application_name = application_name
        self._looking = threading.Lock()
        self._obstacle: str | None = "not looked yet"
        self._looked_at = float("-inf")

    def obstacle(self) -> str | None:
        """What is in the way, in a sentence; None when nothing is. A second old at most, or being looked at."""
        if elapsed() - self._looked_at < REMEMBER_SECONDS:
            return self._obstacle
        # While the database is silent one thread waits for it; the others repeat what is known.
        first_look = self._looked_at == float("-inf")
        if self._looking.acquire(blocking=first_look):
            try:
                if elapsed() - self._looked_at >= REMEMBER_SECONDS:
                    self._obstacle = self._look()
                    self._looked_at = elapsed()
            finally:
                self._looking.release()
        return self._obstacle

    def _look(self) -> str | None:
        try:
            with connect(self._dsn, application_name=self._application_name, reply_seconds=REPLY_SECONDS) as connection:
                check_level(connection)
        except AijobsError as error:
            return str(error)
        return None
