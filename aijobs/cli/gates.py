"""`aijobs gates`."""

from __future__ import annotations

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.store import gates as store

_COLUMNS = ("provider", "key_fingerprint", "state", "reason", "code", "refusals", "jobs_waiting", "shut_at", "probe_at")


@click.group()
def gates() -> None:
    """See which providers take no work, and open their gates by hand.

    A gate is shut when a provider rejects our key or has no money left, or refuses everything for a while. Jobs of that
    provider then wait in line, with no attempt spent; one of them tries now and then, and opens it if it succeeds.
    """


@gates.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the gates of providers that have refused something."""
    with database() as db:
        print_rows(store.list_all(db), _COLUMNS, as_json=as_json)


@gates.command("open")
@click.argument("provider")
def open_(provider: str) -> None:
    """Open the gate of PROVIDER now: the key was replaced, or the account has money again."""
    with database() as db:
        opened = store.open_by_hand(db, provider)
        if not opened:
            raise click.ClickException(f"nothing is shut for provider {provider!r}; see `aijobs gates list`")
    click.echo(f"opened {opened}; waiting jobs are claimed at the workers' next look")
