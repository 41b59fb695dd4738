"""`aijobs keys`."""

from __future__ import annotations

import json
from uuid import UUID

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.store import tenants as store


@click.group()
def keys() -> None:
    """API keys. A key is shown once, when it is created; only a digest of it is stored."""


@keys.command()
@click.option("--tenant", "tenant_id", type=click.UUID, required=True, help="The tenant's id.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(store.SCOPES),
    multiple=True,
    help="May be repeated; default: submit and read.",
)
@click.option("--name", default="", help="A word to remember the key by.")
@click.option("--json", "as_json", is_flag=True, help='Print {"api_key": ...}.')
def create(tenant_id: UUID, scopes: tuple[str, ...], name: str, as_json: bool) -> None:
    """Create an API key and show it, this once."""
    with database() as db:
        try:
            key = store.create_key(db, tenant_id, scopes=scopes or store.DEFAULT_SCOPES, name=name)
        except LookupError as error:
            raise click.ClickException(str(error)) from None
    click.echo(json.dumps({"api_key": key}) if as_json else key)


@keys.command("list")
@click.option("--tenant", "tenant_id", type=click.UUID, required=True, help="The tenant's id.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(tenant_id: UUID, as_json: bool) -> None:
    """List a tenant's keys by their prefixes."""
    with database() as db:
        print_rows(
            store.list_keys(db, tenant_id), ("prefix", "name", "scopes", "created_at", "revoked_at"), as_json=as_json
        )


@keys.command()
@click.argument("prefix")
def revoke(prefix: str) -> None:
    """Revoke the key with this PREFIX (or the whole key)."""
    with database() as db:
        if not store.revoke_key(db, prefix):
            raise click.ClickException("no such key, or it was revoked before")
    click.echo("revoked; API processes notice within 5 s")
