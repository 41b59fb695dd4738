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
from aijobs.domain.policy import Backoff, Retry
from aijobs.errors import AijobsError, NotSent, PermanentError, ProviderError
from aijobs.kinds import Answer, Kind
from aijobs.providers.base import Adapter
from aijobs.providers.exchange import Exchange
from aijobs.store.claims import Accepted, Result
from workers.call import Call
from workers.endings import about, count_ending, ending_of, words_of
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
        provider = self._kind.settings.provider
        if provider is None:
            raise PermanentError("no_provider", f"[kinds.{self._kind.name}] names no provider to call.")
        call = Call(
            self._held,
            self._desk.writer,
            provider=provider,
            model=body.get("model", self._kind.settings.model),
            step=step,
            fingerprint=fingerprint,
        )
        adapter = self._desk.adapters[provider]
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
        log.error("attempt not settled, its lease will run out: %s", failure, extra=about(claim))
        return None
    count_ending(ending.decision, settled)
    _log(claim, settled if settled is not Settled.DONE else words_of(ending))
    return ending.decision.delay_seconds if isinstance(ending.decision, Retry) else None


def _log(claim: Claim, what: str) -> None:
    log.info("attempt %s", what, extra=about(claim))
