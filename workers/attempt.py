"""One claim, from start to finish: run the handler, make its calls, settle the job by what came of it.

`run_attempt` owns the control flow. The order inside a call is the promise of the whole project: connect; commit that
the request is leaving; check that the job is still ours; and only then write the first byte. So at whatever moment a
worker dies, the database either knows that nothing was sent, or knows that it cannot know.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aijobs import metrics
from aijobs.clock import elapsed
from aijobs.config import KindSettings
from aijobs.domain.claims import Claim, Settled
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.domain.policy import Backoff, Decision, Fail, Hold, Retry, after_failure
from aijobs.errors import AijobsError, LeaseLost, NotSent, PermanentError, ProviderError, UnstorableValue
from aijobs.kinds import Answer, Kind
from aijobs.providers.base import Adapter, Reply
from aijobs.providers.exchange import UNSENT_PHASES, Exchange
from aijobs.store.calls import CallEnding, Intent
from aijobs.store.claims import Accepted, Ending, Result
from workers.held import HeldClaim
from workers.writer import Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Desk:
    """What every attempt of a process works with."""

    kinds: Mapping[str, Kind]
    adapters: Mapping[str, Adapter]
    writer: Writer


class Attempt:
    """What a handler sees: its payload, its kind, and calls to the provider."""

    def __init__(self, held: HeldClaim, kind: Kind, desk: Desk) -> None:
        self._held = held
        self._kind = kind
        self._desk = desk
        self._steps: set[str] = set()

    @property
    def payload(self) -> Any:
        return self._held.claim.payload

    @property
    def kind(self) -> KindSettings:
        return self._kind.settings

    def call(self, step: str, body: Mapping[str, Any]) -> Answer:
        """Send one request to the kind's provider, unless an earlier attempt has already paid for this very one.

        Raises ProviderError when no usable reply came, NotSent when it was stopped before it was sent, and ValueError
        for a step name used twice in one attempt.
        """
        if step in self._steps:
            raise ValueError(f"step {step!r} was called twice in one attempt; give each call its own name")
        self._steps.add(step)
        request = json.dumps(body, sort_keys=True).encode()
        fingerprint = hashlib.sha256(f"{self._kind.settings.provider}\0".encode() + request).digest()
        return self._stored(step, fingerprint) or self._send(step, dict(body), fingerprint)

    def _stored(self, step: str, fingerprint: bytes) -> Answer | None:
        claim = self._held.claim
        if claim.allowance.attempts == 1:
            return None
        stored = self._desk.writer.find_stored(claim.job_id, step, fingerprint)
        if stored is None:
            return None
        metrics.result_reused()
        result = stored.result
        return Answer(result["text"], result["finish_reason"], result["model"], stored.usage)

    def _send(self, step: str, body: dict[str, Any], fingerprint: bytes) -> Answer:
        call = _Call(self._held, self._kind.settings, step, fingerprint, self._desk.writer)
        adapter = self._desk.adapters[call.provider]
        exchange = Exchange(self._held.deadline_at - elapsed(), call.before_send)
        self._held.while_stoppable_by(exchange.abort)
        try:
            reply = adapter.call(body, exchange=exchange, client_request_id=call.client_request_id, on_delta=None)
        except ProviderError as error:
            call.failed(error, exchange)
            raise
        except NotSent as stopped:
            call.not_sent(stopped)
            raise
        except BaseException as error:
            raise call.broke(error, exchange) from error
        finally:
            self._held.while_stoppable_by(None)
        call.succeeded(reply, exchange)
        return Answer(reply.text, reply.finish_reason, reply.model, reply.usage)


class _Call:
    """The bookkeeping of one request: the intent before its first byte, the ending after its last."""

    def __init__(self, held: HeldClaim, kind: KindSettings, step: str, fingerprint: bytes, writer: Writer) -> None:
        self._held = held
        self._writer = writer
        self._step = step
        self._fingerprint = fingerprint
        self._marked = False
        self._model = kind.model
        self.provider = kind.provider or ""
        claim = held.claim
        self.client_request_id = f"{claim.job_id}.{claim.allowance.attempts}.{step}"

    def before_send(self) -> None:
        """Called when the connection is up. Raises NotSent unless the request may leave."""
        claim = self._held.claim
        intent = Intent(claim.job_id, claim.run_token, self._step, self.provider, self._model, self._fingerprint)
        if not self._writer.mark_sent(intent):
            raise NotSent("fenced")
        self._marked = True
        # The commit may have waited for long. A paused or starved worker must not send what another already does.
        if not self._held.lease_is_safe():
            raise NotSent("lease_lost")
        metrics.provider_attempt()

    def not_sent(self, stopped: NotSent) -> None:
        if self._marked:
            error = {"code": f"not_sent_{stopped.reason}", "class": "transient", "message": "Stopped before sending."}
            self._finish("failed", "none", error=error)

    def failed(self, error: ProviderError, exchange: Exchange) -> None:
        if not self._marked:  # the connection never came up: there was no call to record, the attempt says why
            return
        unknown = error.failure.error_class is ErrorClass.UNKNOWN
        metrics.provider_outcome(self.provider, self._model, "unknown" if unknown else "failed")
        if unknown:
            metrics.provider_unknown_outcome()
        self._finish(
            "unknown" if unknown else "failed",
            "none" if _did_no_work(error) else "unknown",
            exchange=exchange,
            http_status=error.http_status,
            provider_request_id=error.provider_request_id,
            provider_operation_id=error.provider_operation_id,
            usage=error.usage,
            error=_error_of(error.failure),
        )

    def broke(self, error: BaseException, exchange: Exchange) -> BaseException:
        """What to raise when an adapter fails in a way it should not. Once sent, that is unknown like any other end."""
        if not self._marked:
            return error
        words = f"The adapter raised {type(error).__name__} in mid-call."
        unknown = ProviderError(Failure(ErrorClass.UNKNOWN, "adapter_error", words), phase=exchange.phase)
        self.failed(unknown, exchange)
        return unknown

    def succeeded(self, reply: Reply, exchange: Exchange) -> None:
        metrics.provider_outcome(self.provider, self._model, "succeeded")
        metrics.tokens(self.provider, self._model, reply.usage)
        self._finish(
            "succeeded",
            "unknown",
            exchange=exchange,
            http_status=reply.http_status,
            provider_request_id=reply.provider_request_id,
            provider_operation_id=reply.provider_operation_id,
            usage=reply.usage,
            result={"text": reply.text, "finish_reason": reply.finish_reason, "model": reply.model},
        )

    def _finish(self, outcome: str, cost_basis: str, *, exchange: Exchange | None = None, **facts: Any) -> None:
        first_byte = None if exchange is None else exchange.first_byte_seconds
        if first_byte is not None:
            metrics.time_to_first_byte(first_byte * 1000)
        claim = self._held.claim
        # From here the answer is worth more than the deadline: it is written for as long as the database needs.
        self._held.settling = True
        try:
            late = self._writer.finish_call(
                CallEnding(
                    job_id=claim.job_id,
                    run_token=claim.run_token,
                    step=self._step,
                    outcome=outcome,
                    cost_basis=cost_basis,
                    first_byte_seconds=first_byte,
                    **facts,
                )
            )
        finally:
            self._held.settling = False
        if late:
            metrics.late_result()


def run_attempt(held: HeldClaim, desk: Desk) -> float | None:
    """Run the handler of a claim and settle the job; for how many seconds it is in backoff then, None if it is not.

    Returns when the job is settled, or is not ours to settle.
    """
    claim = held.claim
    kind = desk.kinds[claim.kind]
    started_at = elapsed()
    metrics.queue_wait(claim.waited_seconds * 1000)
    try:
        result = kind.run(Attempt(held, kind, desk))
        _accept(held, desk, json.dumps(result, allow_nan=False))
        return None
    except BaseException as error:  # noqa: BLE001 - the attempt's border: whatever a handler does harms only its own job
        return _end(held, kind, desk, error)
    finally:
        metrics.attempt_duration((elapsed() - started_at) * 1000)


def _accept(held: HeldClaim, desk: Desk, result_json: str) -> None:
    claim = held.claim
    held.settling = True
    accepted = desk.writer.accept(Result(claim.job_id, claim.run_token, result_json))
    match accepted.settled:
        case Settled.DONE:
            _count_acceptance(accepted)
            _log(claim, "succeeded")
        case Settled.ALREADY:
            _log(claim, "succeeded")
        case Settled.CANCELLED:
            metrics.job_cancelled()
            _log(claim, "cancelled")
        case Settled.LOST:
            metrics.leases_lost(1)
            _log(claim, "lost: another worker owns the job")


def _count_acceptance(accepted: Accepted) -> None:
    metrics.job_accepted()
    metrics.time_to_result(accepted.age_seconds * 1000)
    metrics.run_duration(accepted.run_seconds * 1000)
    metrics.attempts_per_job(accepted.attempts)


def _end(held: HeldClaim, kind: Kind, desk: Desk, error: BaseException) -> float | None:
    """Settle an attempt that brought no result. A settlement that fails is left to the reaper, and logged."""
    claim = held.claim
    backoff = Backoff(kind.settings.backoff_seconds, kind.settings.backoff_cap_seconds)
    ending = ending_of(held.reason, claim, error, backoff, random.random())
    if ending is None:
        _log(claim, "lost: another worker owns the job")
        return None
    held.settling = True
    try:
        settled = desk.writer.settle(claim.job_id, claim.run_token, ending)
    except AijobsError as failure:
        log.error("attempt not settled, its lease will run out: %s", failure, extra=_about(claim))
        return None
    count_ending(ending.decision, settled)
    _log(claim, settled if settled is not Settled.DONE else _words(ending))
    return ending.decision.delay_seconds if isinstance(ending.decision, Retry) else None


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
            log.exception("handler raised", exc_info=error, extra=_about(claim))
            failure = Failure(ErrorClass.TRANSIENT, "handler_error", f"The handler raised {type(error).__name__}.")
    outcome = "unknown" if failure.error_class is ErrorClass.UNKNOWN else "failed"
    if reason == "cancelled":
        outcome = "cancelled"
    return Ending(outcome, after_failure(claim.allowance, failure, backoff, jitter), _error_of(failure))


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


def _did_no_work(error: ProviderError) -> bool:
    """Whether the provider has nothing to bill: it refused by status, or cannot have had the whole request."""
    if error.failure.error_class is ErrorClass.UNKNOWN or error.usage is not None:
        return False
    return error.phase in UNSENT_PHASES or (error.http_status or 0) >= 400


def _error_of(failure: Failure) -> dict[str, str]:
    return {"code": failure.code, "class": failure.error_class, "message": failure.message}


def _expired() -> dict[str, str]:
    return {
        "code": "deadline_exceeded",
        "class": "permanent",
        "message": "The job was not finished before its expires_at.",
    }


def _words(ending: Ending) -> str:
    code = (ending.error or {}).get("code", "handed back")
    match ending.decision:
        case Retry(delay_seconds=delay):
            return f"{ending.outcome} ({code}), again in {delay:.1f} s"
        case Hold():
            return f"{ending.outcome} ({code}), held for a person"
        case Fail():
            return f"failed ({code})"


def _about(claim: Claim) -> dict[str, object]:
    return {"job_id": str(claim.job_id), "attempt": claim.allowance.attempts}


def _log(claim: Claim, what: str) -> None:
    log.info("attempt %s", what, extra=_about(claim))
