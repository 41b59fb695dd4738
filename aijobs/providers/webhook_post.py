"""Telling a receiver: one signed POST to an address that was looked at first, and connected to as it was seen.

The address is a stranger's. So the name is resolved once, every address it leads to must be one that may be called,
and the connection goes to one of those: a second resolution could lead elsewhere. There are no redirects, no proxies
of the environment, and an end to everything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aijobs.domain.webhooks import Network, may_be_called
from aijobs.errors import NotSent
from aijobs.providers.exchange import AddressRefused, Exchange
from aijobs.providers.transport import TransportFailure, send
from aijobs.retry_after import retry_after_seconds

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
# The whole of it: a receiver that answers byte by byte gets no more.
TOTAL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it: the receiver's status, or why there is none. `retry_after_seconds` is its wish."""

    status: int | None = None
    error: str | None = None
    retry_after_seconds: float | None = None


def post(url: str, *, webhook_id: str, body: str, secrets: Sequence[str], allowed: Sequence[Network]) -> Told:
    """Tell a receiver. Raises nothing: `error` is a slug. The body of the answer is not read."""

    def admit(addresses: Sequence[str]) -> None:
        if not all(may_be_called(address, allowed) for address in addresses):
            raise AddressRefused

    exchange = Exchange(TOTAL_SECONDS, lambda: None, admit=admit)
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(secret, webhook_id, timestamp, body) for secret in secrets),
    }
    try:
        with send(
            "POST",
            url,
            headers=headers,
            body=body.encode(),
            exchange=exchange,
            connect_seconds=CONNECT_SECONDS,
            read_seconds=READ_SECONDS,
            max_reply_bytes=0,
        ) as reply:
            if exchange.reason is not None:  # headers that were cut by our deadline look like whole ones
                return Told(error="no_answer")
            return Told(reply.status, None, retry_after_seconds(reply.headers, datetime.now(UTC)))
    except AddressRefused:
        return Told(error="address_refused")
    except NotSent:
        return Told(error="not_reached_in_time")
    except TransportFailure as failure:
        if failure.trust:
            return Told(error="certificate_refused")
        return Told(error="no_answer" if exchange.sent_possible else "not_reached")


def _signature(secret: str, webhook_id: str, timestamp: str, body: str) -> str:
    """As Standard Webhooks has it: HMAC-SHA256 over id, time and body, under the secret's bytes."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = hmac.new(key, f"{webhook_id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()
