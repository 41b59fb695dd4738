"""`aijobs migrate`."""

from __future__ import annotations

import json

import click

from aijobs.config import Settings
from aijobs.store import migrate as migrations


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what was applied as JSON.")
def migrate(as_json: bool) -> None:
    """Bring the database's schema to this release's level.

    Safe to run twice, by several deploys at once, under traffic, and again after it was killed.
    """
    dsn = Settings.from_env().require_database_url()
    applied = migrations.migrate(dsn, say=lambda line: click.echo(line, err=True))
    if as_json:
        click.echo(json.dumps({"applied": applied, "level": migrations.required_level()}))
    else:
        click.echo(f"schema is at level {migrations.required_level()}, {len(applied)} migrations applied now")
