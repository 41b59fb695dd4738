"""Jobs over HTTP: create, read, list, cancel."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from flask import Flask, Response, request

from aijobs import metrics
from aijobs.api import bodies, job_requests, listing, waiting
from aijobs.api.auth import Caller, allow
from aijobs.api.conditional import etag_of, matches
from aijobs.api.correlation import trace_id
from aijobs.api.problems import Problem, not_found
from aijobs.api.render import answer, attempt_body, job_address, job_body, retry_after
from aijobs.api.service import service
from aijobs.domain.idempotency import parse_key, request_hash
from aijobs.domain.jobs import Job
from aijobs.store import jobs
from aijobs.store.jobs import CreateOutcome

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def install(app: Flask) -> None:
    app.add_url_rule("/api/ai/jobs", "jobs_create", create, methods=["POST"])
    app.add_url_rule("/api/ai/jobs", "jobs_list", list_page, methods=["GET"])
    app.add_url_rule("/api/ai/jobs/<job_id>", "jobs_get", get, methods=["GET"])
    app.add_url_rule("/api/ai/jobs/<job_id>/cancel", "jobs_cancel", cancel, methods=["POST"])
    app.add_url_rule("/api/ai/jobs/<job_id>/attempts", "jobs_attempts", attempts, methods=["GET"])


def create() -> Response:
    """Create a job, once for each key. The answer is given after the commit and never before it."""
    caller = allow("submit")
    listing.refuse_query()
    key = _idempotency_key()
    document = bodies.json_document()
    fingerprint = request_hash(document)
    try:
        new = job_requests.new_job(
            document,
            service().kinds,
            tenant_id=caller.tenant_id,
            idempotency_key=key,
            request_hash=fingerprint,
            trace_id=trace_id(),
            webhooks_allow=service().settings.webhooks_allow,
        )
    except Problem:
        # What an invalid body's key has made before is the answer all the same: the schema may have become stricter
        # since, or the client may have taken a used key for another request.
        made = jobs.find_by_key(service().db, caller.tenant_id, key)
        if made is None:
            raise
        return _replayed(made[1], caller, same=made[0] == fingerprint)
    created = jobs.create(service().db, new)
    if created.outcome is CreateOutcome.CREATED:
        return _created(created.job, caller)
    return _replayed(created.job, caller, same=created.outcome is CreateOutcome.REPLAYED)


def get(job_id: str) -> Response:
    """The job; with a wait, when it differs from what the client has, or from how it stood when the request came."""
    caller = allow("read")
    seconds = waiting.query_seconds(listing.only("wait"))
    preferred = waiting.preferred_seconds() if seconds is None else None
    job = _found(jobs.get(service().db, caller.tenant_id, job_id_from(job_id)))
    known = request.headers.get("If-None-Match")
    granted = False
    if known is None or matches(known, etag_of(job.version)):
        job, granted = waiting.wait_for_change(job, caller.tenant_id, preferred or seconds or 0.0)
    etag = etag_of(job.version)
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Authorization"} | retry_after(job)
    if preferred is not None and granted:
        headers["Preference-Applied"] = "wait"
    if matches(known, etag):
        return Response(status=304, headers=headers)
    return answer(job_body(job, caller), headers=headers)


def list_page() -> Response:
    caller = allow("read")
    page = listing.page_request(caller.tenant_id)
    # One more than is shown tells whether there is a next page.
    found = jobs.list_page(
        service().db, caller.tenant_id, filters=page.filters, before=page.before, limit=page.limit + 1
    )
    shown = found[: page.limit]
    more = len(found) > len(shown)
    cursor = listing.write_cursor(shown[-1].id, caller.tenant_id, page.filters) if more else None
    return answer({"data": [job_body(job, caller) for job in shown], "next_cursor": cursor})


def cancel(job_id: str) -> Response:
    """Ask for a job's end: 200 if it has ended, now or before, and 202 if its worker has yet to notice."""
    caller = allow("submit")
    listing.refuse_query()
    job = _found(jobs.request_cancel(service().db, caller.tenant_id, job_id_from(job_id)))
    if not job.status.terminal:
        service().notifier.cancel(job.id)
    service().notifier.changed([job.id])
    return answer(job_body(job, caller), 200 if job.status.terminal else 202, retry_after(job))


def attempts(job_id: str) -> Response:
    caller = allow("read")
    listing.refuse_query()
    found: list[dict[str, Any]] = _found(jobs.attempts(service().db, caller.tenant_id, job_id_from(job_id)))
    return answer({"data": [attempt_body(attempt) for attempt in found]})


def _idempotency_key() -> str:
    header = request.headers.get("Idempotency-Key")
    if header is None:
        detail = "Send an Idempotency-Key that names this submission, such as a random UUID."
        raise Problem("idempotency_key_missing", detail)
    try:
        return parse_key(header)
    except ValueError as error:
        raise Problem("idempotency_key_invalid", f"The Idempotency-Key cannot be used: {error}.") from None


def _created(job: Job, caller: Caller) -> Response:
    metrics.job_created()
    # Workers find a job that is due later when it is due; a hint now would wake them for nothing.
    if job.run_at <= job.created_at:
        service().notifier.notify(job.queue)
    return _submitted(job, caller, {"Location": job_address(job.id)})


def _replayed(job: Job, caller: Caller, *, same: bool) -> Response:
    """The job that the key made before, as it now stands, if that request was the same; else a conflict."""
    if not same:
        detail = "This key was used for a different request before. Use a new key, or send the same request."
        raise Problem("idempotency_key_reused", detail)
    metrics.job_replayed()
    return _submitted(job, caller, {"Location": job_address(job.id), "Idempotent-Replayed": "true"})


def _submitted(job: Job, caller: Caller, headers: dict[str, str]) -> Response:
    """The job as it stands; where the client prefers to wait, as it stands at its end or after so long."""
    seconds = waiting.preferred_seconds()
    if seconds is not None:
        job, granted = waiting.wait_for_end(job, caller.tenant_id, seconds)
        if granted:
            headers["Preference-Applied"] = "wait"
    return answer(job_body(job, caller), 200 if job.status.terminal else 202, headers | retry_after(job))


def job_id_from(text: str) -> UUID:
    """An id from an address. A malformed one is answered like an unknown one."""
    if not _UUID.fullmatch(text):
        raise not_found()
    return UUID(text)


def _found(thing: Any) -> Any:
    if thing is None:
        raise not_found()
    return thing
