"""How an attempt ends that brought no result: from what was raised to what is written."""

from __future__ import annotations

import logging
import traceback

from aijobs import metrics
from aijobs.config import KindSettings
from aijobs.domain.claims import Claim, Settled
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.domain.policy import Backoff, Decision, Fail, Hold, Retry, after_failure
from aijobs.errors import (
    AijobsError,
    HandlerOverran,
    LeaseLost,
    NotSent,
    OutputRejected,
    PermanentError,
    ProviderError,
    TransientError,
    UnstorableValue,
)
from aijobs.providers.reply_text import clean
from aijobs.retry_after import MAX_SECONDS
from aijobs.store.claims import Ending

log = logging.getLogger(__name__)

_MOST_CHARACTERS = 500
_MOST_CODE_CHARACTERS = 100


def ending_of(
    reason: str | None,
    claim: Claim,
    error: BaseException,
    backoff: Backoff,
    jitter: float,
    unknown: ProviderError | None = None,
) -> Ending | None:
    """How an attempt ends that brought no result; None when the lease is lost and nothing may be written.

    `reason` is why the attempt was stopped from outside, if it was. A cancel needs no case of its own: the statements
    look at the mark under the row's lock and end the job as cancelled, whatever is asked of them here. `unknown` is a
    call of the attempt whose outcome is not known: unless the job has failed for good, the attempt ends as that call
    did, for any repeat of the attempt would repeat the call.
    """
    if reason == "lease_lost" or isinstance(error, LeaseLost):
        return None
    if unknown is not None and not _is_permanent(error):
        error = unknown
    match error:
        case NotSent(reason="drain" | "fenced" | "cancelled"):
            return Ending("released", Retry(0.0, counted=False), None)
        case NotSent(reason="lease_lost"):
            return None
        case NotSent() if reason == "expired":
            return Ending("failed", Fail("deadline_exceeded", counted=False), _expired())
        case NotSent():
            failure = Failure(ErrorClass.TRANSIENT, "deadline", "The attempt's deadline came before anything was sent.")
        case ProviderError() if reason == "expired":
            return Ending("unknown", Fail("deadline_exceeded"), _expired())
        case ProviderError():
            failure = error.failure
        case PermanentError():
            failure = Failure(ErrorClass.PERMANENT, clean(str(error.code))[:_MOST_CODE_CHARACTERS], _short(error))
        case TransientError():
            wish = error.retry_after_seconds
            wish = None if wish is None or not wish > 0 else min(wish, MAX_SECONDS)
            failure = Failure(ErrorClass.TRANSIENT, "handler_retry", _short(error), retry_after_seconds=wish)
        case OutputRejected():
            failure = Failure(ErrorClass.TRANSIENT, "output_rejected", _short(error))
        case HandlerOverran():
            failure = Failure(ErrorClass.TRANSIENT, "handler_overran", "The handler did not stop at its deadline.")
        case UnstorableValue():
            failure = Failure(
                ErrorClass.PERMANENT, "unstorable_result", "The result holds what PostgreSQL cannot store."
            )
        case _:
            # An exception's own text may quote a prompt: its type is told, and the places in the code.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("handler raised %s\n%s", type(error).__name__, places, extra=about(claim))
            failure = Failure(ErrorClass.TRANSIENT, "handler_error", f"The handler raised {type(error).__name__}.")
    outcome = "unknown" if failure.error_class is ErrorClass.UNKNOWN else "failed"
    if reason == "cancelled":
        outcome = "cancelled"
    return Ending(outcome, after_failure(claim.allowance, failure, backoff, jitter), error_of(failure))


def count_ending(decision: Decision, settled: Settled) -> None:
    """Count what a settlement that committed now did to its job."""
    if settled is Settled.CANCELLED:
        metrics.job_cancelled()
    if settled is Settled.REQUEUED:
        metrics.job_retried()
    if settled is Settled.HELD:
        metrics.job_held()
    if settled is not Settled.DONE:
        return
    match decision:
        case Fail():
            metrics.job_failed()
        case Hold():
            metrics.job_held()
        case Retry():
            metrics.job_retried()


def backoff_of(kind: KindSettings) -> Backoff:
    """How a kind spaces its repeats."""
    return Backoff(kind.backoff_seconds, kind.backoff_cap_seconds)


def _is_permanent(error: BaseException) -> bool:
    if isinstance(error, ProviderError):
        return error.failure.error_class is ErrorClass.PERMANENT
    return isinstance(error, PermanentError | UnstorableValue)


def _short(error: AijobsError) -> str:
    """What a handler says of its error: fit to be stored, and bounded."""
    return clean(str(error))[:_MOST_CHARACTERS]


def error_of(failure: Failure) -> dict[str, str]:
    """A failure as attempts, calls and jobs store it."""
    return {"code": failure.code, "class": failure.error_class, "message": failure.message}


def words_of(ending: Ending) -> str:
    """An ending for a log line."""
    code = (ending.error or {}).get("code", "handed back")
    match ending.decision:
        case Retry(delay_seconds=delay):
            return f"{ending.outcome} ({code}), again in {delay:.1f} s"
        case Hold():
            return f"{ending.outcome} ({code}), held for a person"
        case Fail():
            return f"failed ({code})"


def _expired() -> dict[str, str]:
    return {
        "code": "deadline_exceeded",
        "class": "permanent",
        "message": "The job was not finished before its expires_at.",
    }


def about(claim: Claim) -> dict[str, object]:
    """What a log line about the attempt carries."""
    return {"job_id": str(claim.job_id), "attempt": claim.allowance.attempts}
