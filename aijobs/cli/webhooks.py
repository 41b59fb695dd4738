"""`aijobs webhooks`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.store import webhooks as store
from aijobs.store.tenants import new_webhook_secret

_COLUMNS = ("id", "job_id", "type", "status", "tries", "last_status", "last_error", "due_at", "url")


@click.group()
def webhooks() -> None:
    """See what receivers were told, tell them again, and replace the secrets that sign it.

    A job created with a webhook_url is told of once when it ends, signed as Standard Webhooks has it, and tried again
    for a day until the receiver answers 2xx. One that answers 410 is told nothing more.
    """


@webhooks.command("list")
@click.option("--tenant", "tenant_id", type=click.UUID, help="Only this tenant's.")
@click.option("--job", "job_id", type=click.UUID, help="Only this job's.")
@click.option("--status", type=click.Choice(["pending", "delivered", "failed", "disabled"]), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="So many at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(tenant_id: UUID | None, job_id: UUID | None, status: str | None, limit: int, as_json: bool) -> None:
    """List deliveries, newest first."""
    with database() as db:
        found = store.list_all(db, tenant_id=tenant_id, job_id=job_id, status=status, limit=limit)
        print_rows(found, _COLUMNS, as_json=as_json)


@webhooks.command()
@click.argument("delivery_id", type=click.UUID, required=False)
@click.option("--job", "job_id", type=click.UUID, help="All deliveries of this job.")
@click.option("--tenant", "tenant_id", type=click.UUID, help="Only if it is this tenant's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def replay(delivery_id: UUID | None, job_id: UUID | None, tenant_id: UUID | None, as_json: bool) -> None:
    """Send a delivery that has ended once more, under the same webhook-id.

    It is tried at once, and has a day again until it is given up. One that is pending goes on as it is.
    """
    if (delivery_id is None) == (job_id is None):
        raise click.UsageError("give either a delivery's id or --job")
    with database() as db:
        again = store.replay(db, delivery_id=delivery_id, job_id=job_id, tenant_id=tenant_id)
    if not again:
        raise click.ClickException("no such delivery has ended; see `aijobs webhooks list`")
    if as_json:
        print_rows(again, (), as_json=True)
        return
    for row in again:
        click.echo(f"{row['id']} is sent again to {row['url']}")


@webhooks.command()
@click.argument("url")
@click.option("--tenant", "tenant_id", type=click.UUID, required=True, help="Whose receiver it is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def enable(url: str, tenant_id: UUID, as_json: bool) -> None:
    """Tell a receiver again that had answered 410, from the next job on; `replay` sends what it has missed."""
    with database() as db:
        if not store.enable(db, tenant_id, url):
            raise click.ClickException("this receiver is not disabled")
    click.echo(json.dumps({"enabled": url}) if as_json else "enabled")


@webhooks.group("secrets")
def secrets_() -> None:
    """See and replace what signs a tenant's deliveries, in the form that every library for Standard Webhooks takes.

    They are stored as they are, because a digest cannot sign, and stand in no log.
    """


@secrets_.command("list")
@click.option("--tenant", "tenant_id", type=click.UUID, required=True, help="Whose secrets they are.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_secrets(tenant_id: UUID, as_json: bool) -> None:
    """Print the secrets that sign for a tenant now, the current one first. A tenant without any is given its first."""
    with database() as db, db.connection() as connection:
        if not store.list_secrets(connection, tenant_id):
            with _unknown_tenant_is_told():
                store.add_secret(connection, tenant_id, new_webhook_secret())
        print_rows(store.list_secrets(connection, tenant_id), ("secret", "created_at", "expires_at"), as_json=as_json)


@secrets_.command()
@click.option("--tenant", "tenant_id", type=click.UUID, required=True, help="Whose secret it is.")
@click.option(
    "--keep-hours",
    type=click.FloatRange(0, 24 * 30),
    default=24.0,
    show_default=True,
    help="How long those of before sign beside the new one; 0 if one of them has leaked.",
)
@click.option("--json", "as_json", is_flag=True, help='Print {"secret": ...}.')
def rotate(tenant_id: UUID, keep_hours: float, as_json: bool) -> None:
    """Make a new secret for a tenant and print it; the first one, if there is none.

    Until the old one ends, deliveries carry a signature of each, so that receivers change over in their own time.
    """
    secret = new_webhook_secret()
    with database() as db, _unknown_tenant_is_told():
        store.rotate_secret(db, tenant_id, secret, keep_seconds=keep_hours * 3600)
    click.echo(json.dumps({"secret": secret}) if as_json else secret)


@contextmanager
def _unknown_tenant_is_told() -> Iterator[None]:
    try:
        yield
    except LookupError as error:
        raise click.ClickException(f"{error}; see `aijobs tenants list`") from None
