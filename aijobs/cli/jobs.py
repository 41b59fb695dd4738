"""`aijobs jobs`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any
from uuid import UUID

import click

from aijobs.cli.database import database
from aijobs.cli.output import print_rows
from aijobs.domain.jobs import JobStatus, ListFilter
from aijobs.store import jobs as store

_TENANT = click.option("--tenant", "tenant_id", type=click.UUID, required=True, help="The tenant's id.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def jobs() -> None:
    """Look at a tenant's jobs, and cancel them."""


@jobs.command("list")
@_TENANT
@click.option("--status", type=click.Choice([status.value for status in JobStatus]))
@click.option("--kind")
@click.option("--queue")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@_JSON
def list_(tenant_id: UUID, status: str | None, kind: str | None, queue: str | None, limit: int, as_json: bool) -> None:
    """List jobs, newest first."""
    filters = ListFilter(status=None if status is None else JobStatus(status), kind=kind, queue=queue)
    with database() as db:
        rows = [
            dataclasses.asdict(job) for job in store.list_page(db, tenant_id, filters=filters, before=None, limit=limit)
        ]
    print_rows(rows, ("id", "status", "kind", "queue", "attempts", "created_at", "finished_at"), as_json=as_json)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@_TENANT
@_JSON
def show(job_id: UUID, tenant_id: UUID, as_json: bool) -> None:
    """Show one job with its attempts and calls: what happened, and what may have been paid for."""
    with database() as db:
        job = store.get(db, tenant_id, job_id)
        attempts = store.attempts(db, tenant_id, job_id)
    if job is None or attempts is None:
        raise click.ClickException("this tenant has no such job")
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(job) | {"attempts_made": attempts}, default=str))
        return
    click.echo(
        f"job {job.id}  {job.status}  kind {job.kind}  created {job.created_at}  finished {job.finished_at or '-'}"
    )
    if job.error is not None:
        click.echo(f"error {job.error['code']} ({job.error['class']}): {job.error['message']}")
    for attempt in attempts:
        for line in attempt_lines(attempt):
            click.echo(line)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@_TENANT
def cancel(job_id: UUID, tenant_id: UUID) -> None:
    """Cancel a job: at once if no worker has it, else as soon as its worker hears of it."""
    with database() as db:
        job = store.request_cancel(db, tenant_id, job_id)
    if job is None:
        raise click.ClickException("this tenant has no such job")
    click.echo("it is running and will end as cancelled" if job.status is JobStatus.RUNNING else f"it is {job.status}")


def attempt_lines(attempt: dict[str, Any]) -> list[str]:
    """An attempt and its calls, for a person."""
    error = attempt["error"]
    why = "" if error is None else f"  ({error['code']})"
    lines = [f"  attempt {attempt['number']}  {attempt['outcome'] or 'running'}{why}  by {attempt['worker']}"]
    for call in attempt["calls"]:
        usage = call["usage"] or {}
        tokens = f"{usage.get('input_tokens')} in, {usage.get('output_tokens')} out" if usage else "tokens not reported"
        lines.append(
            f"    call {call['step']} to {call['provider']}: {call['outcome'] or call['stage']}, {tokens}{_paid(call)}"
        )
    return lines


def _paid(call: dict[str, Any]) -> str:
    if call["cost_basis"] == "none":
        return ", not paid for"
    return ", may have been paid for" if call["outcome"] in (None, "unknown") else ", paid for"
