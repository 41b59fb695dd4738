"""`aijobs usage`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.store import usage as store
from aijobs.store.usage import GROUPS, Period

COLUMNS = (
    "group",
    "jobs",
    "accepted",
    "first_try_share",
    "retries",
    "unknown",
    "input_tokens",
    "output_tokens",
    "cost_known_micros",
    "cost_most_micros",
    "cost_per_accepted_micros",
    "charged_micros",
    "margin_micros",
)
_BAR = 40
_DAY = click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"))


@click.command()
@click.option("--tenant", "tenant_id", type=click.UUID, help="One tenant's. Default: all tenants'.")
@click.option("--from", "start", type=_DAY, help="Jobs created from then on, UTC. Default: 30 days ago.")
@click.option("--to", "end", type=_DAY, help="Jobs created before then, UTC. Default: now.")
@click.option("--group-by", type=click.Choice(GROUPS), default="day", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--chart", is_flag=True, help="Draw the cost per accepted job of each group.")
def usage(
    tenant_id: UUID | None,
    start: datetime | None,
    end: datetime | None,
    group_by: str,
    as_json: bool,
    as_csv: bool,
    chart: bool,
) -> None:
    """What jobs of a period asked for, cost and were charged; amounts in micro-units.

    cost_known is what is known of the calls' cost, cost_most counts for an unknown call what it may have cost at most.
    `aijobs usage --group-by provider --chart` compares providers by what an accepted job costs.
    """
    until = datetime.now(UTC) + timedelta(seconds=1) if end is None else end.replace(tzinfo=UTC)
    since = until - timedelta(days=30) if start is None else start.replace(tzinfo=UTC)
    with database() as db:
        rows = store.summary(db, Period(since, until), group_by=group_by, tenant_id=tenant_id)
    if as_json:
        click.echo(json.dumps(rows))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif chart:
        for line in chart_lines(rows):
            click.echo(line)
    else:
        print_rows(rows, COLUMNS, as_json=False)
    unpriced = sum(row["cost_unbounded"] for row in rows)
    if unpriced and not as_json and not as_csv:
        click.echo(f"{unpriced} calls have no known cost and no known bound: see `aijobs prices`", err=True)


def chart_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A bar for each group that has accepted jobs, cheapest first."""
    known = sorted((row for row in rows if row["accepted"]), key=lambda row: row["cost_per_accepted_micros"])
    if not known:
        return ["no accepted jobs"]
    most = max(row["cost_per_accepted_micros"] for row in known) or 1
    width = max(len(row["group"] or "-") for row in known)
    lines = ["cost per accepted job, in micro-units (first-try share, accepted jobs)"]
    for row in known:
        cost = row["cost_per_accepted_micros"]
        bar = "#" * max(1 if cost else 0, round(_BAR * cost / most))
        share = f"{row['first_try_share']:.0%}, {row['accepted']}"
        lines.append(f"{(row['group'] or '-').ljust(width)}  {bar.ljust(_BAR)}  {cost:>10}  ({share})")
    return lines
