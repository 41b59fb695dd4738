"""The bookkeeping of one request to a provider: the intent before its first byte, the ending after its last."""

from __future__ import annotations

from typing import Any

from aijobs import metrics
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.errors import NotSent, ProviderError
from aijobs.providers.base import Reply
from aijobs.providers.exchange import UNSENT_PHASES, Exchange
from aijobs.store.calls import CallEnding, Intent
from workers.endings import error_of
from workers.held import HeldClaim
from workers.writer import Writer


class Call:
    """One request of an attempt. `step` and `fingerprint` are what a later attempt finds its answer by."""

    def __init__(
        self, held: HeldClaim, writer: Writer, *, provider: str, model: str | None, step: str, fingerprint: bytes
    ) -> None:
        self._held = held
        self._writer = writer
        self._step = step
        self._fingerprint = fingerprint
        self._marked = False
        self._model = model
        self._provider = provider
        claim = held.claim
        self.client_request_id = f"{claim.job_id}.{claim.allowance.attempts}.{step}"

    def before_send(self) -> None:
        """Called when the connection is up. Raises NotSent unless the request may leave."""
        claim = self._held.claim
        intent = Intent(claim.job_id, claim.run_token, self._step, self._provider, self._model, self._fingerprint)
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
        metrics.provider_outcome(self._provider, self._model, "unknown" if unknown else "failed")
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
            error=error_of(error.failure),
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
        metrics.provider_outcome(self._provider, self._model, "succeeded")
        metrics.tokens(self._provider, self._model, reply.usage)
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


def _did_no_work(error: ProviderError) -> bool:
    """Whether the provider has nothing to bill: it refused by status, or cannot have had the whole request."""
    if error.failure.error_class is ErrorClass.UNKNOWN or error.usage is not None:
        return False
    return error.phase in UNSENT_PHASES or (error.http_status or 0) >= 400
