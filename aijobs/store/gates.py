"""Gates: what keeps jobs from a provider that takes no work under our key, for all workers of the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aijobs.store.db import Connection, Database, fetch_all, fetch_one

# In seconds, the first and the longest. A stopped account needs a person, so it is tried ever less often; an overload
# passes sooner.
ACCOUNT_SECONDS, ACCOUNT_CAP_SECONDS = 60, 900
OVERLOAD_SECONDS, OVERLOAD_CAP_SECONDS = 1, 2
# So many refusals in a row, over all workers and without one success, are an overload and not a busy moment.
OVERLOAD_REFUSALS = 50


@dataclass(frozen=True, slots=True)
class Refusal:
    """A provider's refusal under our key. `account`: nobody's job can run on this key until somebody acts."""

    provider: str
    key_fingerprint: str
    account: bool
    code: str


def refuse(connection: Connection, refusal: Refusal) -> bool:
    """Take note of a refusal; whether this one has shut the gate. Source: sql/gates/refuse.sql."""
    row = fetch_one(
        connection,
        "gates/refuse",
        {
            "provider": refusal.provider,
            "key_fingerprint": refusal.key_fingerprint,
            "reason": "account" if refusal.account else "overload",
            "code": refusal.code,
            "most_refusals": 1 if refusal.account else OVERLOAD_REFUSALS,
            "first_seconds": ACCOUNT_SECONDS if refusal.account else OVERLOAD_SECONDS,
        },
    )
    return row is not None and bool(row["shut_now"])


def take_probe(connection: Connection, *, provider: str, key_fingerprint: str) -> bool:
    """Whether this process may try the shut gate with one job. Source: sql/gates/take_probe.sql."""
    parameters = {
        "provider": provider,
        "key_fingerprint": key_fingerprint,
        "account_cap_seconds": ACCOUNT_CAP_SECONDS,
        "overload_cap_seconds": OVERLOAD_CAP_SECONDS,
    }
    return fetch_one(connection, "gates/take_probe", parameters) is not None


def taken(connection: Connection, *, provider: str, key_fingerprint: str) -> bool:
    """The provider has taken work: open its gate; whether there was anything against it. Source: sql/gates/open.sql."""
    parameters = {"provider": provider, "key_fingerprint": key_fingerprint}
    return fetch_one(connection, "gates/open", parameters) is not None


def open_by_hand(db: Database, provider: str) -> int:
    """Open the gates of all the provider's keys; how many. Source: sql/gates/open.sql."""
    with db.connection() as connection:
        return len(fetch_all(connection, "gates/open", {"provider": provider, "key_fingerprint": None}))


def list_all(db: Database) -> list[dict[str, Any]]:
    """The gates there are. Source: sql/gates/list.sql."""
    with db.connection() as connection:
        return fetch_all(connection, "gates/list", {})
