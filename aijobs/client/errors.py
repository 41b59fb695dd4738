"""What the client raises: one class for each thing that a caller may want to do next.

No message holds an API key, a payload or a result, so that each may be logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aijobs.errors import AijobsError

if TYPE_CHECKING:
    from aijobs.client.jobs import Job

_MOST_TITLE_CHARACTERS = 500


class ClientError(AijobsError):
    """Base of all that the client raises on purpose.

    `idempotency_key` is the key of the create that failed, None for other requests: with it the same create can be
    sent again later, and finds the job if the lost one made it.
    """

    idempotency_key: str | None = None


class ApiError(ClientError):
    """The API refused a request. What it says is as RFC 9457 has it.

    `code` is a slug for programs, `retryable` whether the same request may succeed later, `errors` what is wrong
    where (`pointer`, `detail`), `request_id` what to ask the operators about. `status` is None when no answer came.
    """

    def __init__(
        self,
        status: int | None,
        code: str,
        title: str,
        detail: str = "",
        *,
        request_id: str | None = None,
        retryable: bool = False,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        said = " ".join(word for word in (f"{code}: {title}.", detail) if word)
        super().__init__(said if request_id is None else f"{said} (request {request_id})")
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.request_id = request_id
        self.retryable = retryable
        self.errors = tuple(errors)
        self.retry_after_seconds = retry_after_seconds


class ValidationFailed(ApiError):
    """The request is not valid; `errors` says where. 422."""


class IdempotencyKeyReused(ApiError):
    """The key has made a job of another request before. 409."""


class InsufficientBudget(ApiError):
    """The tenant's budget does not cover the job's reservation. 402."""


class RateLimited(ApiError):
    """Too many requests or jobs for now. 429."""


class Unauthorized(ApiError):
    """No API key was given, or it is not, or no longer, valid. 401."""


class Forbidden(ApiError):
    """The key's scopes do not allow it. 403."""


class NotFound(ApiError):
    """There is no such job, or it is another tenant's. 404."""


class Unavailable(ApiError):
    """The service could not be reached or cannot serve now, for longer than the client was to try.

    A create may have made its job all the same: send it again with `idempotency_key`.
    """


class StreamBroken(ClientError):
    """The event stream holds what cannot be: an event that is no JSON, has no number, or leaves a gap, repeatedly."""


class WaitTimeout(ClientError):
    """The job has not ended in the time given. It goes on. `job` is how it was last seen, None if it never was."""

    def __init__(self, job_id: str, job: Job | None) -> None:
        seen = "it could not be asked about" if job is None else f"it is {job.status}"
        super().__init__(f"job {job_id} has not ended in the time given: {seen}")
        self.job_id = job_id
        self.job = job


class JobNotSucceeded(ClientError):
    """Base of what stands in the way of a result. `job` is the job as it then was."""

    def __init__(self, job: Job, words: str) -> None:
        super().__init__(f"job {job.job_id} {words}")
        self.job = job

    @property
    def error(self) -> Mapping[str, Any] | None:
        """The job's error: `code`, `class`, `message`."""
        return self.job.error


class JobFailed(JobNotSucceeded):
    """The job has failed; `error` says why. Its message may quote the provider, so that ours holds the code only."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, f"has failed: {(job.error or {}).get('code', 'no error is given')}")


class JobCancelled(JobNotSucceeded):
    """The job was cancelled."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, "was cancelled")


class JobHeld(JobNotSucceeded):
    """The job waits for a person to decide about it. That is no end: raised only where it was asked for."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, "is held until a person decides about it")


_OF_CODE: dict[str, type[ApiError]] = {
    "validation_error": ValidationFailed,
    "idempotency_key_reused": IdempotencyKeyReused,
    "insufficient_budget": InsufficientBudget,
    "rate_limited": RateLimited,
    "unauthenticated": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "unavailable": Unavailable,
    "request_timeout": Unavailable,
}
# For answers that are not the API's own, such as those of a gateway in front of it.
_OF_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    402: InsufficientBudget,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    422: ValidationFailed,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def api_error(
    status: int, reason: str, problem: Any, *, request_id: str | None, retry_after_seconds: float | None
) -> ApiError:
    """The error for an answer. `problem` is its problem document; anything else is taken for none."""
    if not isinstance(problem, Mapping):
        problem = {}
    code = str(problem.get("code") or f"http_{status}")
    kind = _OF_CODE.get(code) or _OF_STATUS.get(status, ApiError)
    retryable = problem.get("retryable", kind in (Unavailable, RateLimited))
    errors = problem.get("errors")
    return kind(
        status,
        _line(code),
        _line(problem.get("title") or reason or "the answer says no more").rstrip("."),
        _line(problem.get("detail") or ""),
        request_id=_line(problem.get("request_id") or request_id or "") or None,
        retryable=retryable is True,
        errors=[fault for fault in errors if isinstance(fault, Mapping)] if isinstance(errors, list) else (),
        retry_after_seconds=retry_after_seconds,
    )


def _line(text: object) -> str:
    """One line of bounded length without control characters: it comes from outside and goes to logs and terminals."""
    shown = "".join(mark if mark.isprintable() else " " for mark in str(text)[:_MOST_TITLE_CHARACTERS])
    return shown.strip()
