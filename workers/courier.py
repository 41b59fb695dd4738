"""Delivering webhooks: one thread that claims and settles, and a few that wait for receivers.

Only the process that has the courier's duty delivers, so that an idle fleet asks once and not once a process. Nothing
here has a part in running jobs: a receiver that takes its time costs a sender, and two of a receiver at most. A process
that dies has its tries made again by another, under the same id, when their time is over.
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

# Tries under way at once: threads that wait. Those of one receiver, and of all receivers that one tenant has named, are
# a part of them that leaves room for the others.
SENDERS = 32
PER_RECEIVER = 2
PER_TENANT = 6
# How often deliveries are looked for; more often while some are under way.
IDLE_SECONDS = 1.0
BUSY_SECONDS = 0.25
# The duty outlasts a look by this: long enough for a slow round, short enough that a dead holder is soon followed.
DUTY_SLACK_SECONDS = 4.0
# A try whose process died is due again after this long: well beyond what a try may take.
LEASE_SECONDS = 4 * TOTAL_SECONDS
_GONE = 410
_FIRST = (UUID(int=0), "")


class Courier(threading.Thread):
    """Delivers while this process has the duty; sleeps, without a connection, while another has."""

    def __init__(self, connect: Callable[[], Connection], *, worker_id: str, allowed: Sequence[Network]) -> None:
        super().__init__(name="courier", daemon=True)
        self._connect = connect
        self._worker_id = worker_id
        self._allowed = allowed
        self._connection: Connection | None = None
        self._after = _FIRST
        self._told: queue.SimpleQueue[tuple[Delivery, Told] | None] = queue.SimpleQueue()  # None: look up
        self._under_way = 0
        self._on_duty = False
        self._retiring = False

    def duty_is_vacant(self) -> None:
        """A claim of jobs has seen that nobody delivers."""
        if not self._on_duty:
            self._told.put(None)

    def retire(self) -> None:
        """Take no more and hand over the duty; what is under way may end."""
        self._retiring = True
        self._told.put(None)

    def stop(self) -> None:
        """As `retire`; what is not settled within a moment is due again by itself."""
        self.retire()
        self.join(1.0)

    def run(self) -> None:
        pause: float | None = None  # until told that the duty is vacant
        while not self._retiring:
            self._settle_what_comes(pause)
            if not self._retiring:
                pause = self._look()
        self._hand_over()
        while self._under_way:
            self._settle_what_comes(TOTAL_SECONDS)
        self._disconnect()

    def _look(self) -> float | None:
        """A round, unless the database is away; for how many seconds to wait before the next, None if for ever."""
        try:
            return self._round()
        except AijobsError as error:
            log.warning("webhooks wait for the database: %s", error)
            self._disconnect()
            return IDLE_SECONDS

    def _round(self) -> float | None:
        if self._connection is None:
            self._connection = self._connect()
        free = SENDERS - self._under_way
        found = webhooks.claim(
            self._connection,
            worker_id=self._worker_id,
            hold_seconds=IDLE_SECONDS + DUTY_SLACK_SECONDS,
            after=self._after,
            limit=free,
            per_receiver=PER_RECEIVER,
            per_tenant=PER_TENANT,
            lease_seconds=LEASE_SECONDS,
        )
        self._on_duty = found.on_duty
        if free:  # else nobody's turn has come
            self._after = found.next_after
        for delivery in found.deliveries:
            self._begin(delivery, self._secrets_of(self._connection, delivery.tenant_id))
        if self._under_way or self._after != _FIRST:
            return BUSY_SECONDS
        if not self._on_duty:
            self._disconnect()
            return None
        return IDLE_SECONDS

    def _begin(self, delivery: Delivery, signing: Sequence[str]) -> None:
        self._under_way += 1
        try:
            threading.Thread(target=self._send, args=(delivery, signing), name="sender", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            self._told.put((delivery, Told(error="not_sent")))

    def _send(self, delivery: Delivery, signing: Sequence[str]) -> None:
        """The whole of a sender's thread. Whatever a stranger's URL or answer may break, it breaks this try alone."""
        told = Told(error="not_sent")
        try:
            told = post(
                delivery.url,
                webhook_id=str(delivery.id),
                body=_body(delivery),
                secrets=signing,
                allowed=self._allowed,
            )
        except Exception as error:  # noqa: BLE001 - see above
            # Its text may quote headers, and they the signature.
            log.error("a webhook's try broke: %s", type(error).__name__, extra={"job_id": str(delivery.job_id)})
        finally:
            self._told.put((delivery, told))

    def _settle_what_comes(self, seconds: float | None) -> None:
        """Settle what senders bring, for so long (None: until told to look up), and at once what has come by then."""
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

    def _hand_over(self) -> None:
        """So that the fleet need not wait for the duty to run out."""
        if self._on_duty and self._connection is not None:
            try:
                webhooks.give_up_duty(self._connection, worker_id=self._worker_id)
            except AijobsError as error:
                log.warning("the courier's duty was not handed over, it runs out by itself: %s", error)
                self._disconnect()

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
