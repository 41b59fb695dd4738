"""Waiting for a job's end: long polls where the server holds them, else looks as far apart as it wishes."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from aijobs.client.errors import JobHeld, RateLimited, Unavailable, WaitTimeout
from aijobs.client.jobs import Job
from aijobs.clock import elapsed

# What a gateway between us and the server will usually hold a silent request for is 30 s or more.
LONG_POLL_SECONDS = 25
# Where an answer comes at once and does not say when to ask again.
POLL_SECONDS = 1.0
# Many clients that were told the same moment do not all return in it.
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Look:
    """What one request told: the job, None if it is as it was, and when to ask again."""

    job: Job | None
    retry_after_seconds: float | None


def wait_for_end(
    look: Callable[[str | None, int, float], Look],
    job_id: str,
    *,
    give_up_at: float,
    raise_if_held: bool,
    on_update: Callable[[Job], None] | None,
) -> Job:
    """The job when it has ended, however. `look` takes an ETag, for how many seconds to hold, and until when.

    Raises WaitTimeout at `give_up_at` (as `elapsed` counts), JobHeld if asked to, and ApiError.
    """
    job: Job | None = None
    while True:
        hold_seconds = 0 if job is None else int(max(0.0, min(LONG_POLL_SECONDS, give_up_at - elapsed())))
        asked_at = elapsed()
        try:
            seen = look(None if job is None else job.etag, hold_seconds, give_up_at)
        except (Unavailable, RateLimited):
            if _is_over(give_up_at):
                raise WaitTimeout(job_id, job) from None
            raise
        # Equal bodies count as unchanged: an ETag may be lost on the way.
        changed = seen.job is not None and (job is None or seen.job.document != job.document)
        if seen.job is not None and changed:
            job = seen.job
            if on_update is not None:
                on_update(job)
            if job.ended:
                return job
            if raise_if_held and job.status == "held":
                raise JobHeld(job)
        if elapsed() >= give_up_at:
            raise WaitTimeout(job_id, job)
        if not changed:
            _pause(asked_at, seen.retry_after_seconds, give_up_at)


def _pause(asked_at: float, wished_seconds: float | None, give_up_at: float) -> None:
    """Wait before an unchanged job is looked at again; not at all if the server has held the request long enough."""
    wished = (POLL_SECONDS if wished_seconds is None else wished_seconds) * (1 + _JITTER * random.random())
    time.sleep(max(0.0, min(asked_at + wished, give_up_at) - elapsed()))


def _is_over(give_up_at: float) -> bool:
    """Whether the request was given up for lack of time, and not because the service is away for long.

    A repeat that would have come too late is not made, so that the time is up a little before it is over.
    """
    return math.isfinite(give_up_at) and elapsed() + 2 * POLL_SECONDS >= give_up_at
