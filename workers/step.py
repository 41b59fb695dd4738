"""One step of an attempt: an answer that is paid for already, or one that the provider still has, or one to buy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aijobs import metrics
from aijobs.clock import elapsed
from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass, Failure, Usage
from aijobs.domain.money import Cost, estimated_tokens
from aijobs.errors import NotSent, ProviderError
from aijobs.kinds import Answer
from aijobs.providers.base import Adapter, Lost, NothingFound, Reply, Request
from aijobs.providers.exchange import Exchange
from aijobs.store.calls import CallEnding, Earlier, LostCall, Stored
from workers.call import Call, cancel, cost_of_failure, cost_of_reply, facts_of, stored_form
from workers.gates import Gates
from workers.held import HeldClaim
from workers.writer import Writer

# An attempt that asks for an answer gives its slot back after this long: others wait for it, and asking again is free.
ASK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider as a worker process uses it."""

    settings: ProviderSettings
    adapter: Adapter


class Step:
    """One step of one attempt, under its own name. `model` is what the call's row says when the body names none.

    `show` is given the answer's text as it comes, or at once where the answer was there already.
    """

    def __init__(
        self,
        held: HeldClaim,
        writer: Writer,
        gates: Gates,
        provider: Provider,
        *,
        name: str,
        body: Mapping[str, Any],
        model: str | None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._held = held
        self._writer = writer
        self._gates = gates
        self._provider = provider
        self._name = name
        self._body = body
        self._model = model
        self._show = show
        document = json.dumps(body, sort_keys=True).encode()
        self._input_tokens = estimated_tokens(len(document))
        self._fingerprint = hashlib.sha256(f"{provider.settings.name}\0".encode() + document).digest()
        # The attempt whose answer was used, if it was not this one.
        self.used: int | None = None

    def answer(self) -> Answer:
        """The step's answer.

        Raises ProviderError when there is none to be had now, and NotSent when it was stopped before it was sent.
        """
        earlier = self._earlier()
        if earlier.stored is not None:
            return self._shown(self._reuse(earlier.stored))
        if earlier.lost is not None:
            reply = self._ask(earlier.lost)
            if reply is not None:
                return self._shown(_answer(reply))
        if earlier.forsaken:
            raise self._forsaken()
        return self._send(earlier.rejected)

    def _shown(self, answer: Answer) -> Answer:
        if self._show is not None:
            self._show(answer.text)
        return answer

    def _earlier(self) -> Earlier:
        claim = self._held.claim
        if claim.allowance.attempts == 1:
            return Earlier()
        return self._writer.find_earlier(claim.job_id, claim.allowance.attempts, self._name, self._fingerprint)

    def _reuse(self, stored: Stored) -> Answer:
        metrics.result_reused()
        self.used = stored.attempt
        return answer_of(stored.result, stored.usage)

    def _send(self, rejected: int) -> Answer:
        adapter = self._provider.adapter
        request = self._request(self._dedupe_key(rejected))
        call = Call(
            self._held,
            self._writer,
            self._gates,
            adapter=adapter,
            provider=self._provider.settings.name,
            # The body of a generic service may have anything under the name of a model.
            model=self._model
            if self._provider.settings.adapter == "http"
            else _text(self._body.get("model")) or self._model,
            step=self._name,
            fingerprint=self._fingerprint,
            request=request,
        )
        exchange = Exchange(self._held.deadline_at - elapsed(), call.before_send)
        self._held.while_stoppable_by(exchange.abort)
        try:
            reply = adapter.call(request, exchange=exchange, on_delta=self._show, on_operation=call.on_operation)
        except ProviderError as error:
            self._held.while_stoppable_by(None)
            raise call.failed(error, exchange) from error.__cause__
        except NotSent as stopped:
            call.not_sent(stopped)
            raise
        except BaseException as error:
            raise call.broke(error, exchange) from error
        finally:
            self._held.while_stoppable_by(None)
        call.succeeded(reply, exchange)
        return _answer(reply)

    def _ask(self, lost: LostCall) -> Reply | None:
        """The answer of a lost call; None if the provider says that it did not do it, so that it may be sent again."""
        asked_at = elapsed()
        exchange = Exchange(min(ASK_SECONDS, self._held.deadline_at - asked_at), lambda: None)
        question = Lost(
            request=self._request(lost.dedupe_key or ""), operation_id=lost.operation_id, age_seconds=lost.age_seconds
        )
        self._held.while_stoppable_by(exchange.abort)
        try:
            reply = self._provider.adapter.ask(question, exchange=exchange)
        except NothingFound:
            raise self._unanswered(lost, "not_sent") from None
        except ProviderError as error:
            self._held.while_stoppable_by(None)
            self._raise_unless_undone(lost, error, lost.age_seconds + elapsed() - asked_at)
            return None
        finally:
            self._held.while_stoppable_by(None)
        metrics.tokens(self._provider.settings.name, self._model, reply.usage)
        metrics.result_reused()
        self.used = lost.attempt
        cost = cost_of_reply(reply, lost.price, self._input_tokens)
        self._learn(lost, "succeeded", cost, **facts_of(reply), result=stored_form(reply))
        self._gates.taken(self._provider.settings.name)
        return reply

    def _raise_unless_undone(self, lost: LostCall, error: ProviderError, age_seconds: float) -> None:
        """Raise what an error means that came from asking; return if the provider says that it did not do the work."""
        failure = error.failure
        if failure.refused:
            self._gates.refused(self._provider.settings.name, failure)
        if failure.askable:
            if self._held.reason not in ("cancelled", "expired") and age_seconds < self._provider.settings.ask_seconds:
                # Not counted: asking sends nothing that could be paid for.
                error.failure = replace(failure, refused=True)
                raise error
            stopped = "not_sent" if lost.operation_id is None else cancel(self._provider.adapter, lost.operation_id)
            raise self._unanswered(lost, stopped)
        if failure.error_class is ErrorClass.UNKNOWN:
            raise self._unanswered(lost, "not_sent")
        if failure.error_class is ErrorClass.GATE:
            raise error
        self._learn(lost, "failed", cost_of_failure(error, lost.price, self._input_tokens), **facts_of(error))
        if failure.error_class is ErrorClass.PERMANENT:
            raise error

    def _unanswered(self, lost: LostCall, provider_cancel: str) -> ProviderError:
        """Nobody can say what became of the call: policy speaks now."""
        self._writer.note_asked(self._held.claim.job_id, lost.run_token, self._name, provider_cancel)
        return _outcome_unknown("The provider was asked what became of the call and cannot say.")

    def _forsaken(self) -> ProviderError:
        """This attempt wants something else than the one before it, whose answer nobody will ask for: policy speaks."""
        claim = self._held.claim
        self._writer.forsake(claim.job_id, claim.run_token)
        return _outcome_unknown("An earlier attempt's call may have been done; this attempt asks for something else.")

    def _learn(self, lost: LostCall, outcome: str, cost: Cost, **facts: Any) -> None:
        self._held.settling = True
        try:
            self._writer.learn(
                CallEnding(
                    job_id=self._held.claim.job_id,
                    run_token=lost.run_token,
                    step=self._name,
                    outcome=outcome,
                    cost_basis=cost.basis,
                    cost_micros=cost.micros,
                    **facts,
                )
            )
        finally:
            self._held.settling = False

    def _request(self, dedupe_key: str) -> Request:
        claim = self._held.claim
        request_id = f"{claim.job_id}.{claim.allowance.attempts}.{self._name}"
        return Request(body=self._body, client_request_id=request_id, dedupe_key=dedupe_key)

    def _dedupe_key(self, rejected: int) -> str:
        """The same for whatever must be done once: a refused answer makes the next request another one."""
        parts = f"{self._held.claim.job_id}\0{self._name}\0{rejected}\0".encode()
        return hashlib.sha256(parts + self._fingerprint).hexdigest()


def _outcome_unknown(words: str) -> ProviderError:
    """Not counted: the attempt that sent the call has been."""
    return ProviderError(Failure(ErrorClass.UNKNOWN, "outcome_unknown", words, refused=True), phase="new")


def _text(value: Any) -> str | None:
    """A generic payload may have anything under the name of a model."""
    return value if isinstance(value, str) else None


def answer_of(stored: Mapping[str, Any], usage: Usage) -> Answer:
    """A stored answer as a handler gets it."""
    return Answer(stored["text"], stored["finish_reason"], stored["model"], usage, stored.get("value"))


def _answer(reply: Reply) -> Answer:
    return Answer(reply.text, reply.finish_reason, reply.model, reply.usage, reply.value)
