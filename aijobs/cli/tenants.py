"""`aijobs tenants`."""

from __future__ import annotations

import json

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.store import tenants as store


@click.group()
def tenants() -> None:
    """Tenants: who owns jobs and keys."""


@tenants.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help='Print {"tenant_id": ...}.')
def create(name: str, as_json: bool) -> None:
    """Create a tenant called NAME."""
    with database() as db:
        try:
            tenant_id = store.create_tenant(db, name)
        except ValueError as error:
            raise click.ClickException(str(error)) from None
    click.echo(json.dumps({"tenant_id": str(tenant_id)}) if as_json else f"tenant {tenant_id}")


@tenants.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List all tenants."""
    with database() as db:
        print_rows(store.list_tenants(db), ("id", "name", "created_at"), as_json=as_json)
