"""`aijobs audit`."""

from __future__ import annotations

import json
import sys

import click

from aijobs.config import Settings
from aijobs.store import audit as store
from aijobs.store.db import connect
from aijobs.store.migrate import check_level

# Reading a large table takes a while; nothing waits for it.
_REPLY_SECONDS = 3600.0


@click.command()
@click.option("--rows", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Rows to show of each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit(rows: int, as_json: bool) -> None:
    """Check every promise about the tables on the live database, without blocking it.

    Each promise is a query in sql/invariants/ that returns the rows that break it. Exit status: 0 all hold, 1 not all.
    """
    found = {}
    dsn = Settings.from_env().require_database_url()
    with connect(dsn, application_name="aijobs audit", reply_seconds=_REPLY_SECONDS, reads_tables=True) as connection:
        check_level(connection)
        for name, broken in store.broken(connection, rows):
            found[name] = broken
            if not as_json:
                click.echo(f"{'held  ' if not broken else 'BROKEN'}  {name}")
                for row in broken:
                    click.echo(f"        {json.dumps(row, default=str)}")
    wrong = {name: broken for name, broken in found.items() if broken}
    if as_json:
        click.echo(json.dumps({"checked": len(found), "broken": wrong}, default=str))
    sys.exit(1 if wrong else 0)
