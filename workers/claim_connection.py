"""The connection on which a worker listens and claims: opened with patience, given up when a reply is overdue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from aijobs.errors import AijobsError, Contention, SchemaMismatch
from aijobs.store import reaping
from aijobs.store.db import Connection
from aijobs.store.migrate import check_level
from aijobs.store.notify import Channel, Notifier, hints_in, listen_for_jobs

log = logging.getLogger(__name__)

# How long a reply may take before the connection is thought dead. A server that was stopped, or a network that swallows
# packets behind a proxy, gives no error: only a reply that does not come tells. It starts short, so that jobs wait
# little for a dead connection, and grows while replies are late, so that a slow server is not stormed.
REPLY_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)


class ClaimConnection:
    """Opens when first needed and again after a failure; `on_open` is called each time it did."""

    def __init__(
        self,
        connect: Callable[[float], Connection],
        *,
        worker_id: str,
        held: Callable[[], list[UUID]],
        notifier: Notifier,
        on_open: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._worker_id = worker_id
        self._held = held
        self._notifier = notifier
        self._on_open = on_open
        self._connection: Connection | None = None
        self._failures = 0  # in a row

    def fileno(self) -> int | None:
        """What to wait on for hints; None while there is no connection."""
        return None if self._connection is None else self._connection.fileno()

    def opened(self) -> Connection:
        """The connection, subscribed to hints. Raises StoreUnavailable, Contention and SchemaMismatch."""
        if self._connection is None:
            connection = self._connect(REPLY_SECONDS[min(self._failures, len(REPLY_SECONDS) - 1)])
            try:
                check_level(connection)
                if not listen_for_jobs(connection):
                    log.warning(
                        "no hints arrive through this DSN, polling only: give a direct one in AIJOBS_LISTEN_URL"
                    )
                self._give_back_lost_claims(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self._on_open()
        return self._connection

    def hints(self) -> list[tuple[Channel, str]]:
        """The hints that have come, without waiting. Raises StoreUnavailable."""
        return [] if self._connection is None else list(hints_in(self._connection))

    def worked(self) -> None:
        self._failures = 0

    def failed(self, error: AijobsError) -> float:
        """Take note of a failure; for how many seconds to let the database be. Raises SchemaMismatch again."""
        if isinstance(error, SchemaMismatch):
            raise error
        wait = RECONNECT_SECONDS[min(self._failures, len(RECONNECT_SECONDS) - 1)]
        self._failures += 1
        log.warning("claiming failed, next try in %.1f s: %s", wait, error)
        if not isinstance(error, Contention):  # a lock that was not to be had says nothing against the connection
            self.close()
        return wait

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _give_back_lost_claims(self, connection: Connection) -> None:
        """A claim whose reply was lost may have been committed; its jobs are known to nobody and were never sent."""
        for queue in reaping.release_unheld(connection, worker_id=self._worker_id, held=self._held()):
            log.warning("a claim whose reply was lost was given back")
            self._notifier.notify(queue)
