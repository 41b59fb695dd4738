"""`aijobs stats`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.cli.usage import COLUMNS
from aijobs.store import usage as store
from aijobs.store.usage import Period

_QUEUES = ("queue", "queued", "running", "held", "oldest_queued_seconds", "workers")


@click.command()
@click.option("--hours", type=click.FloatRange(0, 24 * 366, min_open=True), default=24.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(hours: float, as_json: bool) -> None:
    """What the fleet has in hand now, and what the jobs of the last hours came to, all counted from the tables."""
    now = datetime.now(UTC)
    period = Period(now - timedelta(hours=hours), now + timedelta(seconds=1))
    with database() as db:
        queues = store.fleet(db)
        totals = store.summary(db, period, group_by=None, tenant_id=None)
        providers = store.summary(db, period, group_by="provider", tenant_id=None)
    if as_json:
        total = totals[0] if totals else None
        click.echo(json.dumps({"hours": hours, "queues": queues, "total": total, "providers": providers}))
        return
    print_rows(queues, _QUEUES, as_json=False)
    click.echo()
    print_rows([*totals, *providers], COLUMNS, as_json=False)
