"""`aijobs jobs`."""

from __future__ import annotations

import dataclasses
import json
from uuid import UUID

import click

from aijobs import kinds as kinds_
from aijobs.cli.database import database
from aijobs.cli.job_story import story
from aijobs.cli.output import print_rows
from aijobs.cli.submit import submit
from aijobs.config import Settings
from aijobs.domain.jobs import Job, JobStatus, ListFilter
from aijobs.kinds.stored import result_json
from aijobs.store import jobs as store
from aijobs.store import operators
from aijobs.store.notify import Notifier
from aijobs.store.operators import NoStoredResult, WrongStatus

_TENANT = click.option("--tenant", "tenant_id", type=click.UUID, required=True, help="The tenant's id.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def jobs() -> None:
    """Submit jobs; look at a tenant's jobs; cancel, resolve and retry them."""


jobs.add_command(submit)


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
    for line in story(job, attempts):
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


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.argument("action", type=click.Choice(["retry", "fail", "cancel", "accept"]))
@_TENANT
def resolve(job_id: UUID, action: str, tenant_id: UUID) -> None:
    """Decide about a held job.

    retry: send it again, which may be paid for twice. fail, cancel: end it. accept: make a stored answer its result.
    """
    kinds = kinds_.load(Settings.from_env())
    with database() as db:
        try:
            job = operators.resolve(
                db,
                tenant_id,
                job_id,
                action,
                lambda kind, stored: result_json(kinds.get(kind), stored.result, stored.usage),
            )
        except WrongStatus as error:
            raise click.ClickException(f"only a held job can be resolved; this one is {error.status}") from None
        except NoStoredResult:
            raise click.ClickException(
                "no answer is stored that could be its result: use retry, fail or cancel"
            ) from None
    _say_what_it_is(job)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@_TENANT
def retry(job_id: UUID, tenant_id: UUID) -> None:
    """Put a failed or cancelled job back in line, with a fresh allowance of attempts.

    Steps whose answers are stored are not paid for again.
    """
    with database() as db:
        try:
            job = operators.retry(db, tenant_id, job_id)
        except WrongStatus as error:
            words = f"only a failed or cancelled job can be tried again; this one is {error.status}"
            raise click.ClickException(words) from None
    _say_what_it_is(job)


def _say_what_it_is(job: Job | None) -> None:
    if job is None:
        raise click.ClickException("this tenant has no such job")
    hints = Notifier(Settings.from_env().require_database_url(), application_name="aijobs cli")
    if job.status is JobStatus.QUEUED:
        hints.notify(job.queue)
    hints.changed([job.id])
    hints.close()
    click.echo(f"it is {job.status}")
