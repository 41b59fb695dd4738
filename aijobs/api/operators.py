"""What an operator may do over HTTP: resolve a held job, and have an ended one tried again."""

from __future__ import annotations

from uuid import UUID

from flask import Flask, Response
from marshmallow import Schema, ValidationError, fields, validate

from aijobs.api import bodies, listing
from aijobs.api.auth import Caller, allow
from aijobs.api.jobs import job_id_from
from aijobs.api.problems import Problem, not_found
from aijobs.api.render import answer, job_body, retry_after
from aijobs.api.schemas import located
from aijobs.api.service import service
from aijobs.domain.jobs import Job, JobStatus
from aijobs.kinds.stored import result_json
from aijobs.store import operators
from aijobs.store.calls import Stored
from aijobs.store.operators import NoStoredResult, WrongStatus


class Resolution(Schema):
    """The body of a resolve."""

    action = fields.String(required=True, validate=validate.OneOf(("retry", "fail", "cancel", "accept")))


def install(app: Flask) -> None:
    app.add_url_rule("/api/ai/jobs/<job_id>/resolve", "jobs_resolve", resolve, methods=["POST"])
    app.add_url_rule("/api/ai/jobs/<job_id>/retry", "jobs_retry", retry, methods=["POST"])


def resolve(job_id: str) -> Response:
    """Do with a held job what a person has decided."""
    caller = allow("operate")
    listing.refuse_query()
    found = job_id_from(job_id)
    action = _action()
    try:
        job = operators.resolve(service().db, caller.tenant_id, found, action, _result_json)
    except WrongStatus as error:
        detail = f"Only a held job can be resolved; this one is {error.status}."
        raise Problem("wrong_status", detail) from None
    except NoStoredResult:
        detail = "No answer is stored that could be this job's result. Use retry, fail or cancel."
        raise Problem("no_stored_result", detail) from None
    return _changed(job, caller, found)


def retry(job_id: str) -> Response:
    """Put a failed or cancelled job back in line."""
    caller = allow("operate")
    listing.refuse_query()
    found = job_id_from(job_id)
    try:
        job = operators.retry(service().db, caller.tenant_id, found)
    except WrongStatus as error:
        detail = f"Only a failed or cancelled job can be tried again; this one is {error.status}."
        raise Problem("wrong_status", detail) from None
    return _changed(job, caller, found)


def _action() -> str:
    document = bodies.json_document()
    if not isinstance(document, dict):
        raise Problem(
            "validation_error", "The body is not an object.", errors=[{"pointer": "#", "detail": "No object."}]
        )
    try:
        action: str = Resolution().load(document)["action"]
    except ValidationError as error:
        raise Problem("validation_error", "See errors.", errors=list(located(error.messages))) from None
    return action


def _result_json(kind: str, stored: Stored) -> str | None:
    return result_json(service().kinds.get(kind), stored.result, stored.usage)


def _changed(job: Job | None, caller: Caller, job_id: UUID) -> Response:
    if job is None:
        raise not_found()
    if job.status is JobStatus.QUEUED:
        service().notifier.notify(job.queue)
    service().notifier.changed([job.id])
    return answer(job_body(job, caller), 200, retry_after(job))
