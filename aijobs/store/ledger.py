"""What tenants may spend and are charged: an append-only ledger, and the balances that it adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from aijobs.errors import AijobsError, InsufficientBudget
from aijobs.store.db import Connection, Database, fetch_all, fetch_one


class NoBudget(AijobsError):
    """The tenant does not exist, has no budget, or cannot be given one now. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Balance:
    """In micro-units. `budgeted` False: the tenant may spend without bound."""

    budgeted: bool
    granted_micros: int
    reserved_micros: int
    charged_micros: int

    @property
    def available_micros(self) -> int:
        return self.granted_micros - self.reserved_micros - self.charged_micros


def close(connection: Connection, job_ids: Sequence[UUID]) -> None:
    """Charge and release what is due of jobs that have just ended. Safe to repeat. Source: sql/ledger/close.sql."""
    if job_ids:
        fetch_all(connection, "ledger/close", {"job_ids": list(job_ids)})


def grant(db: Database, tenant_id: UUID, amount_micros: int, reason: str | None = None) -> Balance:
    """Give a tenant money to spend, and with it a budget. Raises NoBudget. Source: sql/ledger/grant.sql."""
    with db.connection() as connection:
        row = fetch_one(
            connection, "ledger/grant", {"tenant_id": tenant_id, "amount_micros": amount_micros, "reason": reason}
        )
    if row is None:
        raise NoBudget("no such tenant, or it has open jobs: a first budget is given while none is open")
    return Balance(True, **row)


def adjust(db: Database, tenant_id: UUID, amount_micros: int, reason: str) -> Balance:
    """Correct what was granted, up or down. Raises NoBudget. Source: sql/ledger/adjust.sql."""
    try:
        with db.connection() as connection:
            row = fetch_one(
                connection, "ledger/adjust", {"tenant_id": tenant_id, "amount_micros": amount_micros, "reason": reason}
            )
    except InsufficientBudget:
        raise NoBudget("less than that is free: the rest is reserved or charged") from None
    if row is None:
        raise NoBudget("no such tenant, or it has no budget: grant it one")
    return Balance(True, **row)


def balance(db: Database, tenant_id: UUID) -> Balance | None:
    """What a tenant may still spend; None for an unknown one. Source: sql/ledger/balance.sql."""
    with db.connection() as connection:
        row = fetch_one(connection, "ledger/balance", {"tenant_id": tenant_id})
    return None if row is None else Balance(**row)
