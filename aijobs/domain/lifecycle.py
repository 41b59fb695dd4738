"""The states of a job and the verbs that move it between them: one total table.

A pair that is not in the table leaves the job as it is; the statement for that verb then touches no row. A test puts a
real row in each state, runs each verb's statement and compares the outcome with this table.
"""

from __future__ import annotations

from enum import StrEnum

from aijobs.domain.jobs import JobStatus


class Verb(StrEnum):
    CLAIM = "claim"  # a worker takes a due job
    ACCEPT = "accept"  # its result becomes the job's result
    FAIL = "fail"  # permanent, exhausted, or unknown with on_unknown = fail
    RETRY = "retry"  # transient, unknown with on_unknown = retry, or handed back
    HOLD = "hold"  # unknown with on_unknown = hold
    SETTLE_CANCEL = "settle_cancel"  # a running job whose cancel was asked for ends
    CANCEL = "cancel"  # the client's wish: at once for a waiting job, a mark on a running one
    EXPIRE = "expire"  # expires_at has come for a waiting job
    WAKE = "wake"  # a paid answer came late
    RESOLVE_RETRY = "resolve_retry"  # a person says of a held job: repeat it
    RESOLVE_FAIL = "resolve_fail"  # ... that it is over
    RESOLVE_ACCEPT = "resolve_accept"  # ... that a stored answer is its result
    RETRY_ENDED = "retry_ended"  # a person wants a failed or cancelled job tried again: a new stay


_Q, _R, _H = JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.HELD
_S, _F, _C = JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED

TRANSITIONS: dict[tuple[JobStatus, Verb], JobStatus] = {
    (_Q, Verb.CLAIM): _R,
    (_Q, Verb.CANCEL): _C,
    (_Q, Verb.EXPIRE): _F,
    (_R, Verb.ACCEPT): _S,
    (_R, Verb.FAIL): _F,
    (_R, Verb.RETRY): _Q,
    (_R, Verb.HOLD): _H,
    (_R, Verb.CANCEL): _R,
    (_H, Verb.CANCEL): _C,
    (_H, Verb.EXPIRE): _F,
    (_H, Verb.WAKE): _Q,
    (_H, Verb.RESOLVE_RETRY): _Q,
    (_H, Verb.RESOLVE_FAIL): _F,
    (_H, Verb.RESOLVE_ACCEPT): _S,
    (_F, Verb.RETRY_ENDED): _Q,
    (_C, Verb.RETRY_ENDED): _Q,
}
# With cancel_requested set, a running job has one way left.
TRANSITIONS_WHEN_CANCEL_REQUESTED: dict[tuple[JobStatus, Verb], JobStatus] = {(_R, Verb.SETTLE_CANCEL): _C}


def after(status: JobStatus, verb: Verb, *, cancel_requested: bool = False) -> JobStatus:
    """The state in which `verb` leaves a job that is in `status`; the same state when the verb does not apply."""
    table = TRANSITIONS_WHEN_CANCEL_REQUESTED if cancel_requested else TRANSITIONS
    return table.get((status, verb), status)
