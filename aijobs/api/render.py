"""Answers: a job as its tenant sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from flask import Response, request

from aijobs.api.auth import Caller
from aijobs.domain.jobs import Job, JobStatus

# When to look again. A held job waits for a person.
RETRY_AFTER_SECONDS = {JobStatus.QUEUED: 1, JobStatus.RUNNING: 1, JobStatus.HELD: 30}


_ATTEMPT = ("number", "outcome", "error", "started_at", "finished_at", "worker", "accepted")
_CALL = (
    "step",
    "provider",
    "model",
    "stage",
    "outcome",
    "sent_at",
    "first_byte_at",
    "finished_at",
    "http_status",
    "provider_request_id",
    "provider_cancel",
    "usage",
    "cost_basis",
    "cost_micros",
    "cost_ceiling_micros",
)


def attempt_body(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt and its calls as the API shows them: what happened and what it may cost, and not how we handled it."""
    calls = [{name: call[name] for name in _CALL} for call in attempt["calls"]]
    return {name: attempt[name] for name in _ATTEMPT} | {"calls": calls}


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer that nobody stores, unless the headers say otherwise."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    merged = {"Cache-Control": "no-store", **(headers or {})}
    return Response(text, status, merged, content_type="application/json")


def job_body(job: Job, caller: Caller) -> dict[str, Any]:
    """The job as the API shows it. A caller that may only submit gets it without what the scope `read` protects."""
    body = {
        "job_id": str(job.id),
        "status": job.status,
        "kind": job.kind,
        "queue": job.queue,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "cancel_requested": job.cancel_requested,
        "result": job.result,
        "error": job.error,
        "progress": job.progress,
        "metadata": job.metadata,
        "user_id": job.user_id,
        "trace_id": job.trace_id,
        "created_at": job.created_at,
        "run_at": job.run_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "cost": {"currency": "USD", "reserved_micros": job.reserved_micros, "charged_micros": job.charged_micros},
        "links": _links(job.id),
    }
    if not caller.may("read"):
        del body["result"], body["progress"]
    return body


def job_address(job_id: UUID) -> str:
    return f"{request.script_root}/api/ai/jobs/{job_id}"


def retry_after(job: Job) -> dict[str, str]:
    """The header that says when to look again; none for a job that has ended."""
    seconds = RETRY_AFTER_SECONDS.get(job.status)
    return {} if seconds is None else {"Retry-After": str(seconds)}


def _links(job_id: UUID) -> dict[str, str]:
    address = job_address(job_id)
    return {
        "self": address,
        "cancel": f"{address}/cancel",
        "events": f"{address}/events",
        "attempts": f"{address}/attempts",
    }
