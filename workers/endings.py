"""How an attempt ends that brought no result: from what was raised to what is written."""

from __future__ import annotations

import logging

from aijobs import metrics
from aijobs.domain.claims import Claim, Settled
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.domain.policy import Backoff, Decision, Fail, Hold, Retry, after_failure
from aijobs.errors import LeaseLost, NotSent, PermanentError, ProviderError, UnstorableValue
from aijobs.store.claims import Ending

log = logging.getLogger(__name__)


def ending_of(reason: str | None, claim: Claim, error: BaseException, backoff: Backoff, jitter: float) -> Ending | None:
    """How an attempt ends that brought no result; None when the lease is lost and nothing may be written.

    `reason` is why the attempt was stopped from outside, if it was. A cancel needs no case of its own: the statements
    look at the mark under the row's lock and end the job as cancelled, whatever is asked of them here.
    """
    if reason == "lease_lost" or isinstance(error, LeaseLost):
        return None
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
            failure = Failure(ErrorClass.PERMANENT, error.code, str(error))
        case UnstorableValue():
            failure = Failure(
                ErrorClass.PERMANENT, "unstorable_result", "The result holds what PostgreSQL cannot store."
            )
        case _:
            # The exception's own text may quote a prompt, so only its type is told.
            log.exception("handler raised", exc_info=error, extra=about(claim))
            failure = Failure(ErrorClass.TRANSIENT, "handler_error", f"The handler raised {type(error).__name__}.")
    outcome = "unknown" if failure.error_class is ErrorClass.UNKNOWN else "failed"
    if reason == "cancelled":
        outcome = "cancelled"
    return Ending(outcome, after_failure(claim.allowance, failure, backoff, jitter), error_of(failure))


def count_ending(decision: Decision, settled: Settled) -> None:
    """Count what a settlement that committed now did to its job."""
    if settled is Settled.CANCELLED:
        metrics.job_cancelled()
    if settled is not Settled.DONE:
        return
    match decision:
        case Fail():
            metrics.job_failed()
        case Hold():
            metrics.job_held()
        case Retry():
            metrics.job_retried()


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
