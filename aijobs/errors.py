"""Every error that crosses a module border, on one page.

The classes say what the catcher will do next, not where the error came from.
"""

from __future__ import annotations

from collections.abc import Sequence

from aijobs.domain.failures import Failure, Usage


class AijobsError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(AijobsError):
    """The configuration is unusable. `problems` holds one sentence for each thing to correct."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class StoreUnavailable(AijobsError):
    """The database cannot be reached, does not answer, or refuses writes: the same call may be repeated later."""


class Contention(AijobsError):
    """A lock was not granted in time, or the transaction lost a deadlock: the same call may be repeated at once."""


class UnstorableValue(AijobsError):
    """PostgreSQL refuses the value itself (NUL, a lone surrogate, a number too large): a repeat cannot help."""


class InsufficientBudget(AijobsError):
    """The tenant's budget does not cover the reservation: nothing was changed."""


class NoKnownPrice(AijobsError):
    """A tenant with a budget asks for work whose price is not known: what it might cost cannot be reserved."""


class SchemaMismatch(AijobsError):
    """The database schema is not at the level this code needs."""


class LeaseLost(AijobsError):
    """The fence said no: another token owns the job, or it is no longer running. Stop and write nothing."""


class NotSent(AijobsError):
    """A provider call ended on purpose before the provider could hold a complete request.

    `reason` is what was given to the abort: cancelled, deadline, drain, lease_lost or expired.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PermanentError(AijobsError):
    """Raised by a handler: this job cannot succeed however often it is tried. `code` is a slug for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TransientError(AijobsError):
    """Raised by a handler: this attempt failed, a later one may succeed. `retry_after_seconds`: not before."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class HandlerOverran(BaseException):
    """Raised inside a handler that did not stop at its deadline. Not an Exception, so that few handlers catch it."""


class OutputRejected(AijobsError):
    """Raised by a handler: an answer is of no use, so that its step is to be paid for again, on purpose.

    `step` names the call that brought it; None means the attempt's last one.
    """

    def __init__(self, message: str, step: str | None = None) -> None:
        super().__init__(message)
        self.step = step


class ProviderError(AijobsError):
    """A provider call that brought no usable reply.

    `failure` says what will be done about it; the rest is recorded on the call. `phase` is how far the exchange got,
    `output_characters` how much text had come.
    """

    def __init__(
        self,
        failure: Failure,
        *,
        phase: str,
        http_status: int | None = None,
        provider_request_id: str | None = None,
        provider_operation_id: str | None = None,
        usage: Usage | None = None,
        output_characters: int = 0,
    ) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure
        self.phase = phase
        self.http_status = http_status
        self.provider_request_id = provider_request_id
        self.provider_operation_id = provider_operation_id
        self.usage = usage
        self.output_characters = output_characters
