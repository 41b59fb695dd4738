"""The bookkeeping of one request to a provider: the intent before its first byte, the ending after its last."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aijobs import metrics
from aijobs.domain.failures import ErrorClass, Failure, Usage
from aijobs.domain.money import NOTHING, Cost, Price, cost_of, estimated_tokens
from aijobs.errors import NotSent, ProviderError, UnstorableValue
from aijobs.providers.base import Adapter, Reply, Request
from aijobs.providers.exchange import UNSENT_PHASES, Exchange
from aijobs.store.calls import CallEnding, Intent
from workers.endings import error_of
from workers.gates import Gates
from workers.held import HeldClaim
from workers.writer import Writer

log = logging.getLogger(__name__)

# How long the provider may take to answer that it has stopped; the job's end waits for it.
CANCEL_SECONDS = 2.0


class Call:
    """One request of an attempt. `step` and `fingerprint` are what a later attempt finds its answer by."""

    def __init__(
        self,
        held: HeldClaim,
        writer: Writer,
        gates: Gates,
        *,
        adapter: Adapter,
        provider: str,
        model: str | None,
        step: str,
        fingerprint: bytes,
        request: Request,
    ) -> None:
        self._held = held
        self._writer = writer
        self._gates = gates
        self._adapter = adapter
        self._step = step
        self._fingerprint = fingerprint
        self._request = request
        self._marked = False
        self._price: Price | None = None
        self._input_tokens = estimated_tokens(len(json.dumps(request.body)))
        self._operation_id: str | None = None
        self._model = model
        self._provider = provider

    def before_send(self) -> None:
        """Called when the connection is up. Raises NotSent unless the request may leave."""
        claim = self._held.claim
        intent = Intent(
            claim.job_id,
            claim.run_token,
            self._step,
            self._provider,
            self._model,
            self._fingerprint,
            dedupe_key=self._request.dedupe_key,
            ask_by=self._adapter.ask_by,
            input_tokens=self._input_tokens,
            max_output_tokens=most_output(self._request.body),
        )
        leave = self._writer.mark_sent(intent)
        if not leave.granted:
            raise NotSent("fenced")
        self._marked = True
        self._price = leave.price
        if leave.price is None:
            _say_unpriced(self._provider, self._model)
        # The commit may have waited for long. A paused or starved worker must not send what another already does.
        if not self._held.lease_is_safe():
            raise NotSent("lease_lost")
        metrics.provider_attempt()

    def on_operation(self, operation_id: str) -> None:
        """Called when the provider has told under which id it works: from now on the answer cannot be lost."""
        claim = self._held.claim
        self._operation_id = operation_id
        self._writer.note_operation(claim.job_id, claim.run_token, self._step, operation_id)

    def not_sent(self, stopped: NotSent) -> None:
        if self._marked:
            error = {"code": f"not_sent_{stopped.reason}", "class": "transient", "message": "Stopped before sending."}
            self._finish("failed", NOTHING, error=error)

    def failed(self, error: ProviderError, exchange: Exchange) -> ProviderError:
        """Record the failure. What to raise: the error, with how the provider can be asked what became of the call."""
        failure = error.failure
        if failure.refused:
            self._gates.refused(self._provider, failure)
        if not self._marked:  # the connection never came up: there was no call to record, the attempt says why
            return error
        unknown = failure.error_class is ErrorClass.UNKNOWN
        metrics.provider_outcome(self._provider, self._model, "unknown" if unknown else "failed")
        if unknown:
            metrics.provider_unknown_outcome()
            error.failure = self._with_ways_to_ask(failure)
        self._finish(
            "unknown" if unknown else "failed",
            cost_of_failure(error, self._price, self._input_tokens),
            exchange=exchange,
            provider_cancel=self._cancel() if unknown else "not_sent",
            **facts_of(error),
        )
        return error

    def broke(self, error: BaseException, exchange: Exchange) -> BaseException:
        """What to raise when an adapter fails in a way it should not. Once sent, that is unknown like any other end."""
        if not self._marked:
            return error
        words = f"The adapter raised {type(error).__name__} in mid-call."
        return self.failed(
            ProviderError(Failure(ErrorClass.UNKNOWN, "adapter_error", words), phase=exchange.phase), exchange
        )

    def succeeded(self, reply: Reply, exchange: Exchange) -> None:
        metrics.provider_outcome(self._provider, self._model, "succeeded")
        metrics.tokens(self._provider, self._model, reply.usage)
        cost = cost_of_reply(reply, self._price, self._input_tokens)
        try:
            self._finish("succeeded", cost, exchange=exchange, **facts_of(reply), result=stored_form(reply))
        except UnstorableValue as error:
            # The work was done and is paid for; that its answer cannot be kept makes it unknown to everybody after us.
            words = "The provider's answer holds what PostgreSQL cannot store."
            unkept = Failure(ErrorClass.UNKNOWN, "unstorable_answer", words)
            raise self.failed(ProviderError(unkept, phase=exchange.phase, usage=reply.usage), exchange) from error
        self._gates.taken(self._provider)

    def _with_ways_to_ask(self, failure: Failure) -> Failure:
        by = self._adapter.ask_by
        askable = by == "key" or (by == "operation" and self._operation_id is not None)
        return replace(failure, askable=askable, deduplicated=by == "repeat")

    def _cancel(self) -> str:
        """Tell the provider to stop what nobody waits for any more; how that went, as the call's row says it."""
        if self._held.reason not in ("cancelled", "expired"):
            return "not_sent"
        if self._operation_id is None:
            return "unsupported"
        return cancel(self._adapter, self._operation_id)

    def _finish(self, outcome: str, cost: Cost, *, exchange: Exchange | None = None, **facts: Any) -> None:
        first_byte = None if exchange is None else exchange.first_byte_seconds
        if first_byte is not None:
            metrics.time_to_first_byte(first_byte * 1000)
        if cost.micros:
            metrics.cost(self._provider, self._model, cost.micros)
        claim = self._held.claim
        # From here the answer is worth more than the deadline: it is written for as long as the database needs.
        self._held.settling = True
        try:
            finished = self._writer.finish_call(
                CallEnding(
                    job_id=claim.job_id,
                    run_token=claim.run_token,
                    step=self._step,
                    outcome=outcome,
                    cost_basis=cost.basis,
                    cost_micros=cost.micros,
                    first_byte_seconds=first_byte,
                    **facts,
                )
            )
        finally:
            self._held.settling = False
        if finished.late:
            metrics.late_result()


@functools.cache
def _say_unpriced(provider: str, model: str | None) -> None:
    """Once for each model in a process: a cost that is not known is nobody's zero."""
    log.warning("what %s %s costs is not known: give it a price with `aijobs prices import`", provider, model or "")


def cancel(adapter: Adapter, operation_id: str) -> str:
    """Ask the provider to stop; the answer as the call's row says it."""
    confirmed = adapter.cancel(operation_id, exchange=Exchange(CANCEL_SECONDS, lambda: None))
    return {True: "confirmed", False: "failed", None: "unsupported"}[confirmed]


def facts_of(end: Reply | ProviderError) -> dict[str, Any]:
    """What a reply and an error both tell of a call."""
    facts: dict[str, Any] = {
        "http_status": end.http_status,
        "provider_request_id": end.provider_request_id,
        "provider_operation_id": end.provider_operation_id,
        "usage": end.usage,
    }
    return facts | ({"error": error_of(end.failure)} if isinstance(end, ProviderError) else {})


def stored_form(reply: Reply) -> dict[str, Any]:
    """A reply as the call's row keeps it; its usage stands in columns."""
    stored = {"text": reply.text, "finish_reason": reply.finish_reason, "model": reply.model}
    return stored if reply.value is None else stored | {"value": reply.value}


def cost_of_reply(reply: Reply, price: Price | None, input_tokens: int) -> Cost:
    """What an answer cost: as reported, else estimated from its text."""
    return cost_of(price, reply.usage, Usage(input_tokens, estimated_tokens(len(reply.text))))


def cost_of_failure(error: ProviderError, price: Price | None, input_tokens: int) -> Cost:
    """What a call without an answer cost: nothing, what was reported or seen of it, or nobody knows."""
    if did_no_work(error):
        return NOTHING
    seen = Usage(input_tokens, estimated_tokens(error.output_characters)) if error.output_characters else None
    return cost_of(price, error.usage, seen)


def most_output(body: Mapping[str, Any]) -> int | None:
    """The most tokens that a request allows its answer, under any of the names that providers have for it."""
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        if type(body.get(name)) is int and body[name] > 0:
            return int(body[name])
    return None


def did_no_work(error: ProviderError) -> bool:
    """Whether the provider has nothing to bill: it refused by status, or cannot have had the whole request."""
    if error.failure.error_class is ErrorClass.UNKNOWN or error.usage not in (None, Usage()):
        return False
    return error.phase in UNSENT_PHASES or (error.http_status or 0) >= 400
