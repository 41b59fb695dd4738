"""`aijobs tenants`."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.store import ledger
from aijobs.store import tenants as store
from aijobs.store.ledger import Balance, NoBudget

_COLUMNS = ("id", "name", "created_at", "budgeted", "granted_micros", "reserved_micros", "charged_micros")


@click.group()
def tenants() -> None:
    """Tenants: who owns jobs and keys."""


@tenants.command()
@click.argument("name")
@click.option("--budget-micros", type=click.IntRange(min=0), help="What it may spend; without this it is not bounded.")
@click.option("--json", "as_json", is_flag=True, help='Print {"tenant_id": ...}.')
def create(name: str, budget_micros: int | None, as_json: bool) -> None:
    """Create a tenant called NAME."""
    with database() as db:
        try:
            tenant_id = store.create_tenant(db, name)
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        if budget_micros is not None:
            ledger.grant(db, tenant_id, budget_micros, "at its creation")
    click.echo(json.dumps({"tenant_id": str(tenant_id)}) if as_json else f"tenant {tenant_id}")


@tenants.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List all tenants."""
    with database() as db:
        print_rows(store.list_tenants(db), _COLUMNS, as_json=as_json)


@tenants.command()
@click.argument("tenant_id", type=click.UUID)
@click.argument("amount_micros", type=click.IntRange(min=0))
@click.option("--reason", help="Why, for the ledger.")
def grant(tenant_id: UUID, amount_micros: int, reason: str | None) -> None:
    """Give a tenant AMOUNT_MICROS more to spend; the first grant gives it a budget."""
    with database() as db:
        _say(lambda: ledger.grant(db, tenant_id, amount_micros, reason))


@tenants.command()
@click.argument("tenant_id", type=click.UUID)
@click.argument("amount_micros", type=int)
@click.option("--reason", required=True, help="Why, for the ledger.")
def adjust(tenant_id: UUID, amount_micros: int, reason: str) -> None:
    """Correct what a tenant was granted by AMOUNT_MICROS, up or down (write -- before a negative amount)."""
    with database() as db:
        _say(lambda: ledger.adjust(db, tenant_id, amount_micros, reason))


def _say(change: Callable[[], Balance]) -> None:
    try:
        balance = change()
    except NoBudget as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"granted {balance.granted_micros}, reserved {balance.reserved_micros}, charged {balance.charged_micros},"
        f" available {balance.available_micros}"
    )
