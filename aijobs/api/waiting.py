"""Requests that wait for a job: `?wait=` and `Prefer: wait=`."""

from __future__ import annotations

import re
from uuid import UUID

from flask import request

from aijobs.api.problems import Problem
from aijobs.api.service import service
from aijobs.domain.jobs import Job
from aijobs.store import jobs

MOST_SECONDS = 60.0
_PREFERENCE = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?", re.IGNORECASE)
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")


def preferred_seconds() -> float | None:
    """What `Prefer` asks for, capped; None if it asks for nothing. What is malformed is ignored, as RFC 7240 has it."""
    for preference in ",".join(request.headers.getlist("Prefer")).split(","):
        found = _PREFERENCE.fullmatch(preference.split(";")[0].strip())
        if found:
            return min(float(found[1]), MOST_SECONDS)
    return None


def query_seconds(text: str | None) -> float | None:
    """What `?wait=` asks for, capped. Raises Problem `invalid_query`."""
    if text is None:
        return None
    if not _SECONDS.fullmatch(text):
        raise Problem("invalid_query", "wait must be a number of seconds, such as 30.")
    return min(float(text), MOST_SECONDS)


def wait_for_change(job: Job, tenant_id: UUID, seconds: float) -> tuple[Job, bool]:
    """The job when it differs from `job`, or after so long; and whether that could be granted.

    It is not, and the answer comes at once, where as many wait already as the process has threads for.
    """
    return _wait(job, tenant_id, seconds, until_ended=False)


def wait_for_end(job: Job, tenant_id: UUID, seconds: float) -> tuple[Job, bool]:
    """The same for its end."""
    return _wait(job, tenant_id, seconds, until_ended=True)


def _wait(job: Job, tenant_id: UUID, seconds: float, *, until_ended: bool) -> tuple[Job, bool]:
    if job.status.terminal or seconds <= 0:
        return job, True
    if not service().seats.take():
        return job, False
    try:
        watch = service().fanout.watch(tenant_id, job.id, known=job.version, until_ended=until_ended)
        try:
            watch.wait(seconds)
        finally:
            watch.close()
    finally:
        service().seats.give_back()
    return jobs.get(service().db, tenant_id, job.id) or job, True
