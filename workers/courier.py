"""Delivering webhooks: one thread that claims and settles, and a few that wait for receivers.

Only the process that has the reaper's duty delivers, so that an idle fleet asks once and not once a process. Nothing
here has a part in running jobs: a receiver that takes its time costs a sender, and two of a receiver at most.
"""

from __future__ import annotations

import json
import logging
import queue
import random
import threading
from collections.abc import Callable, Sequence
from uuid import UUID

from aijobs.domain.webhooks import Network, pause_after
from aijobs.errors import AijobsError
from aijobs.providers.webhook_post import TOTAL_SECONDS, Told, post
from aijobs.store import webhooks
from aijobs.store.db import Connection
from aijobs.store.tenants import new_webhook_secret
from aijobs.store.webhooks import Delivery

log = logging.getLogger(__name__)

SENDERS = 16
# How often deliveries are looked for; more often while some are waiting to be tried again.
IDLE_SECONDS = 2.0
BUSY_SECONDS = 0.25
# A try whose process died is due again after this long: well beyond what a try may take.
LEASE_SECONDS = 4 * TOTAL_SECONDS
_GONE = 410
_FIRST = (UUID(int=0), "")


class Courier(threading.Thread):
    """Delivers while it is on duty."""

    def __init__(self, connect: Callable[[], Connection], *, allowed: Sequence[Network]) -> None:
        super().__init__(name="courier", daemon=True)
        self._connect = connect
        self._allowed = allowed
        self._connection: Connection | None = None
        self._after = _FIRST
        self._told: queue.SimpleQueue[tuple[Delivery, Told] | None] = queue.SimpleQueue()
        self._under_way = 0
        self._on_duty = threading.Event()
        self._stopping = False

    def be_on_duty(self, on_duty: bool) -> None:
        if on_duty:
            self._on_duty.set()
        else:
            self._on_duty.clear()

    def stop(self) -> None:
        """Take no more; what is under way is due again by itself if it is not settled in time."""
        self._stopping = True
        self._told.put(None)
        self._on_duty.set()
        self.join(1.0)

    def run(self) -> None:
        pause = IDLE_SECONDS
        while not self._stopping:
            self._on_duty.wait()
            try:
                pause = self._round()
            except AijobsError as error:
                log.warning("webhooks wait for the database: %s", error)
                self._disconnect()
                pause = IDLE_SECONDS
            if not self._stopping:
                self._settle_what_comes(pause)
        self._disconnect()

    def _round(self) -> float:
        """Claim for the senders that are free; for how many seconds to wait before the next look."""
        if self._connection is None:
            self._connection = self._connect()
        free = SENDERS - self._under_way
        if free <= 0:
            return BUSY_SECONDS
        found = webhooks.claim(self._connection, after=self._after, limit=free, lease_seconds=LEASE_SECONDS)
        self._after = found.next_after
        for delivery in found.deliveries:
            signing = self._secrets_of(self._connection, delivery.tenant_id)
            self._under_way += 1
            threading.Thread(target=self._send, args=(delivery, signing), name="sender", daemon=True).start()
        return BUSY_SECONDS if found.deliveries or found.next_after != _FIRST or self._under_way else IDLE_SECONDS

    def _send(self, delivery: Delivery, signing: Sequence[str]) -> None:
        told = Told(error="not_sent")
        try:
            told = post(
                delivery.url,
                webhook_id=str(delivery.id),
                body=_body(delivery),
                secrets=signing,
                allowed=self._allowed,
            )
        finally:
            self._told.put((delivery, told))

    def _settle_what_comes(self, seconds: float) -> None:
        """Settle what senders bring, for so long, and at once what has come by then."""
        while True:
            try:
                brought = self._told.get(timeout=seconds)
            except queue.Empty:
                return
            if brought is None:
                return
            self._under_way -= 1
            seconds = 0.0
            try:
                self._settle(*brought)
            except AijobsError as error:  # it is due again by itself
                log.warning("a webhook's outcome was not recorded: %s", error)
                self._disconnect()

    def _settle(self, delivery: Delivery, told: Told) -> None:
        if self._connection is None:
            self._connection = self._connect()
        pause = pause_after(delivery.tries, random.random(), told.retry_after_seconds)
        if told.status is not None and 200 <= told.status < 300:
            webhooks.deliver(self._connection, delivery, told.status)
            word = "delivered"
        elif told.status == _GONE:
            webhooks.disable(self._connection, delivery)
            word = "its receiver is gone, nothing more is sent there"
        elif pause is None:
            webhooks.give_up(self._connection, delivery, status=told.status, error=told.error)
            word = "given up"
        else:
            webhooks.retry(self._connection, delivery, pause, status=told.status, error=told.error)
            word = f"not taken ({told.status or told.error}), again in {pause:.0f} s"
        log.info("webhook %s", word, extra={"job_id": str(delivery.job_id)})

    def _secrets_of(self, connection: Connection, tenant_id: UUID) -> list[str]:
        found = webhooks.secrets_of(connection, tenant_id)
        if not found:
            webhooks.add_secret(connection, tenant_id, new_webhook_secret())
            found = webhooks.secrets_of(connection, tenant_id)
        return found

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _body(delivery: Delivery) -> str:
    """Thin: what has happened to which job. Whoever wants its result asks for it, with a key."""
    job = {"job_id": str(delivery.job_id), "status": delivery.type.removeprefix("job."), "kind": delivery.kind}
    if delivery.user_id is not None:
        job["user_id"] = delivery.user_id
    return json.dumps({"type": delivery.type, "timestamp": delivery.created_at, "data": job})
