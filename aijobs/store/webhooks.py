"""Deliveries of webhooks: claimed, tried, settled. They are written by the statements that end jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aijobs.store.db import Connection, Database, execute, fetch_all, fetch_one

_FIRST = (UUID(int=0), "")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery that is being tried. `tries` counts this one."""

    id: UUID
    token: UUID
    tenant_id: UUID
    job_id: UUID
    type: str
    url: str
    tries: int
    created_at: str
    kind: str
    user_id: str | None


@dataclass(frozen=True, slots=True)
class Round:
    """What one claim brought. `on_duty` is False when another process delivers; `next_after`: where to go on."""

    on_duty: bool
    deliveries: list[Delivery]
    next_after: tuple[UUID, str]


def claim(
    connection: Connection,
    *,
    worker_id: str,
    hold_seconds: float,
    after: tuple[UUID, str] = _FIRST,
    limit: int,
    per_receiver: int,
    per_tenant: int,
    lease_seconds: float,
) -> Round:
    """Take or renew the duty, and claim what is due, receiver by receiver from `after` on.

    Source: sql/webhooks/claim.sql.
    """
    rows = fetch_all(
        connection,
        "webhooks/claim",
        {
            "worker_id": worker_id,
            "hold_seconds": hold_seconds,
            "after_tenant": after[0],
            "after_receiver": after[1],
            "limit": limit,
            "per_receiver": per_receiver,
            "per_tenant": per_tenant,
            "lease_seconds": lease_seconds,
        },
    )
    names = Delivery.__dataclass_fields__
    found = [Delivery(**{name: row[name] for name in names}) for row in rows if row["id"] is not None]
    last = rows[0]["last_tenant"], rows[0]["last_receiver"]
    return Round(rows[0]["on_duty"], found, _FIRST if last[0] is None else last)


def give_up_duty(connection: Connection, *, worker_id: str) -> None:
    """Let another process deliver at once. Source: sql/webhooks/give_up_duty.sql."""
    execute(connection, "webhooks/give_up_duty", {"worker_id": worker_id})


def deliver(connection: Connection, delivery: Delivery, status: int) -> bool:
    """Record that it was taken; False if the try had been given up. Source: sql/webhooks/deliver.sql."""
    return _settle(connection, "webhooks/deliver", delivery, last_status=status)


def retry(
    connection: Connection, delivery: Delivery, delay_seconds: float, *, status: int | None, error: str | None
) -> bool:
    """Try it again later. Source: sql/webhooks/retry.sql."""
    facts = {"delay_seconds": delay_seconds, "last_status": status, "last_error": error}
    return _settle(connection, "webhooks/retry", delivery, **facts)


def give_up(connection: Connection, delivery: Delivery, *, status: int | None, error: str | None) -> bool:
    """Never try it again. Source: sql/webhooks/give_up.sql."""
    return _settle(connection, "webhooks/give_up", delivery, last_status=status, last_error=error)


def disable(connection: Connection, delivery: Delivery) -> bool:
    """Tell its receiver nothing any more. Source: sql/webhooks/disable.sql."""
    return _settle(connection, "webhooks/disable", delivery)


def enable(db: Database, tenant_id: UUID, url: str) -> bool:
    """Tell a receiver again; False if it was not disabled. Source: sql/webhooks/enable.sql."""
    with db.connection() as connection:
        return fetch_one(connection, "webhooks/enable", {"tenant_id": tenant_id, "url": url}) is not None


def replay(
    db: Database, *, delivery_id: UUID | None = None, job_id: UUID | None = None, tenant_id: UUID | None = None
) -> list[dict[str, Any]]:
    """Try ended deliveries anew: one, or all of a job. Source: sql/webhooks/replay.sql."""
    with db.connection() as connection:
        return fetch_all(
            connection, "webhooks/replay", {"delivery_id": delivery_id, "job_id": job_id, "tenant_id": tenant_id}
        )


def list_all(
    db: Database,
    *,
    tenant_id: UUID | None = None,
    job_id: UUID | None = None,
    status: str | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Deliveries, newest first. Source: sql/webhooks/list.sql."""
    parameters = {"tenant_id": tenant_id, "job_id": job_id, "status": status, "limit": limit}
    with db.connection() as connection:
        return fetch_all(connection, "webhooks/list", parameters)


def list_secrets(connection: Connection, tenant_id: UUID) -> list[dict[str, Any]]:
    """What signs for a tenant, with its times, the current secret first. Source: sql/webhooks/secrets.sql."""
    return fetch_all(connection, "webhooks/secrets", {"tenant_id": tenant_id})


def secrets_of(connection: Connection, tenant_id: UUID) -> list[str]:
    """What signs for a tenant, the current secret first. Source: sql/webhooks/secrets.sql."""
    return [row["secret"] for row in fetch_all(connection, "webhooks/secrets", {"tenant_id": tenant_id})]


def add_secret(connection: Connection, tenant_id: UUID, secret: str) -> bool:
    """Give a tenant its secret; False if it has one. LookupError for an unknown tenant.

    Source: sql/webhooks/add_secret.sql.
    """
    (row,) = fetch_all(connection, "webhooks/add_secret", {"tenant_id": tenant_id, "secret": secret})
    if not row["known"]:
        raise LookupError(f"no tenant {tenant_id}")
    return bool(row["added"])


def rotate_secret(db: Database, tenant_id: UUID, secret: str, *, keep_seconds: float) -> None:
    """Replace a tenant's secret; those of before sign beside it for a while. LookupError for an unknown tenant.

    Sources: sql/webhooks/retire_secrets.sql, add_secret.sql.
    """
    given = {"tenant_id": tenant_id, "keep_seconds": keep_seconds}
    with db.connection() as connection, connection.transaction():
        fetch_all(connection, "webhooks/retire_secrets", given)
        while not add_secret(connection, tenant_id, secret):  # another has come in between, and is retired as well
            fetch_all(connection, "webhooks/retire_secrets", given)


def _settle(connection: Connection, statement: str, delivery: Delivery, **facts: object) -> bool:
    parameters: dict[str, object] = {"id": delivery.id, "token": delivery.token, **facts}
    rows: Sequence[Any] = fetch_all(connection, statement, parameters)
    return bool(rows)
