"""One claim, from start to finish: run the handler, make its calls, settle the job by what came of it.

`run_attempt` owns the control flow. The order inside a call is the promise of the whole project: connect; commit that
the request is leaving; check that the job is still ours; and only then write the first byte. So at whatever moment a
worker dies, the database either knows that nothing was sent, or knows that it cannot know.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aijobs import metrics
from aijobs.clock import elapsed
from aijobs.config import KindSettings
from aijobs.domain.claims import Claim, Settled
from aijobs.domain.failures import ErrorClass
from aijobs.domain.policy import Retry
from aijobs.errors import AijobsError, OutputRejected, PermanentError, ProviderError
from aijobs.kinds import Answer, Kind
from aijobs.providers.reply_text import clean
from aijobs.store.attempts import Said
from aijobs.store.claims import Accepted, Result
from workers.emitter import Emitter
from workers.endings import about, backoff_of, count_ending, ending_of, words_of
from workers.gates import Gates
from workers.held import HeldClaim
from workers.memory import memory_bounded
from workers.step import Provider, Step
from workers.writer import Writer

log = logging.getLogger(__name__)

# Progress is for a person to look at, and shown with every look at the job.
PROGRESS_BYTES = 16 * 1024
# As much as a provider's reply may bring by default.
EMITTED_CHARACTERS = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Desk:
    """What every attempt of a process works with."""

    kinds: Mapping[str, Kind]
    providers: Mapping[str, Provider]
    writer: Writer
    emitter: Emitter
    gates: Gates


class Attempt:
    """What a handler sees; kinds.Attempt says what each part means."""

    def __init__(self, held: HeldClaim, kind: Kind, desk: Desk) -> None:
        self._held = held
        self._kind = kind
        self._desk = desk
        self._emitted_characters = 0
        self.payload: Any = held.claim.payload
        # In the order of the calls: the step's name, and the earlier attempt whose answer was used.
        self.steps: dict[str, int | None] = {}

    @property
    def kind(self) -> KindSettings:
        return self._kind.settings

    @property
    def number(self) -> int:
        return self._held.claim.allowance.attempts

    @property
    def job_id(self) -> UUID:
        return self._held.claim.job_id

    @property
    def deadline(self) -> float:
        return max(0.0, self._held.deadline_at - elapsed())

    @property
    def cancelled(self) -> bool:
        return self._held.reason is not None

    def call(self, step: str, body: Mapping[str, Any], *, stream: bool = False) -> Answer:
        """See kinds.Attempt.call."""
        if step in self.steps:
            raise ValueError(f"step {step!r} was called twice in one attempt; give each call its own name")
        provider = self._provider()
        self.steps[step] = None
        one = Step(
            self._held,
            self._desk.writer,
            self._desk.gates,
            provider,
            name=step,
            body=dict(body),
            model=self._kind.settings.model,
            show=self._show if stream else None,
        )
        with self._held.inside():
            try:
                answer = one.answer()
            except ProviderError as error:
                if error.failure.error_class is ErrorClass.UNKNOWN:
                    self._held.unknown = error
                raise
        self.steps[step] = one.used
        return answer

    def chat(
        self,
        step: str,
        *,
        messages: list[dict[str, str]],
        model: str | None = None,
        stream: bool = False,
        **options: Any,
    ) -> Answer:
        """See kinds.Attempt.chat."""
        wanted = {"model": model or self._kind.settings.model, "messages": messages, **options}
        return self.call(step, self._provider().adapter.chat_body(wanted), stream=stream)

    def progress(self, value: Any) -> None:
        """See kinds.Attempt.progress."""
        text = json.dumps(value, allow_nan=False)
        if len(text) > PROGRESS_BYTES:
            raise ValueError(f"progress has more than {PROGRESS_BYTES} bytes as JSON")
        claim = self._held.claim
        with self._held.inside():
            self._desk.writer.progress(Said(claim.job_id, claim.run_token, text))

    def emit(self, text: str) -> None:
        """See kinds.Attempt.emit."""
        self._emitted_characters += len(text)
        if self._emitted_characters > EMITTED_CHARACTERS:
            raise ValueError(f"more than {EMITTED_CHARACTERS} characters of output")
        with self._held.inside():
            self._show(clean(text))

    def _show(self, text: str) -> None:
        if text:
            self._desk.emitter.emit(self._held.claim, text)

    def _provider(self) -> Provider:
        name = self._kind.settings.provider
        if name is None:
            raise PermanentError("no_provider", f"[kinds.{self._kind.name}] names no provider to call.")
        return self._desk.providers[name]


def run_attempt(held: HeldClaim, desk: Desk) -> float | None:
    """Run the handler of a claim and settle the job; for how many seconds it is in backoff then, None if it is not.

    Returns when the job is settled, or is not ours to settle.
    """
    claim = held.claim
    kind = desk.kinds[claim.kind]
    started_at = elapsed()
    metrics.queue_wait(claim.waited_seconds * 1000)
    attempt = Attempt(held, kind, desk)
    try:
        attempt.payload = kind.read(claim.payload)
        with held.handled(), memory_bounded(kind.settings.memory_mib):
            result_json = json.dumps(kind.run(attempt), allow_nan=False)
        _accept(held, desk, attempt, result_json)
        return None
    except BaseException as error:  # noqa: BLE001 - the attempt's border: whatever a handler does harms only its own job
        return end_attempt(held, desk, attempt, error)
    finally:
        metrics.attempt_duration((elapsed() - started_at) * 1000)


def _accept(held: HeldClaim, desk: Desk, attempt: Attempt, result_json: str) -> None:
    claim = held.claim
    if not held.begin_to_settle():
        return
    desk.emitter.flush(claim)
    used = tuple((number, step) for step, number in attempt.steps.items() if number is not None)
    accepted = desk.writer.accept(Result(claim.job_id, claim.run_token, result_json, used))
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


def end_attempt(held: HeldClaim, desk: Desk, attempt: Attempt | None, error: BaseException) -> float | None:
    """Settle an attempt that brought no result. A settlement that fails is left to the reaper, and logged.

    `attempt` is None when its handler was given up, and whoever did so has begun to settle.
    """
    claim = held.claim
    backoff = backoff_of(desk.kinds[claim.kind].settings)
    ending = ending_of(held.reason, claim, error, backoff, random.random(), unknown=held.unknown)
    if ending is None:
        _log(claim, "lost: another worker owns the job")
        return None
    if attempt is not None and not held.begin_to_settle():
        return None
    try:
        if attempt is not None and isinstance(error, OutputRejected):
            _reject(desk, claim, attempt, error)
        desk.emitter.flush(claim)
        settled = desk.writer.settle(claim.job_id, claim.run_token, ending)
    except AijobsError as failure:
        log.error("attempt not settled, its lease will run out: %s", failure, extra=about(claim))
        return None
    count_ending(ending.decision, settled)
    _log(claim, settled if settled is not Settled.DONE else words_of(ending))
    if settled is Settled.REQUEUED:
        return 0.0
    return ending.decision.delay_seconds if isinstance(ending.decision, Retry) else None


def _reject(desk: Desk, claim: Claim, attempt: Attempt, error: OutputRejected) -> None:
    """Mark the answer that the handler refuses; without a step, that of its last call."""
    step = error.step if error.step is not None else next(reversed(attempt.steps), None)
    if step is not None:
        desk.writer.reject(claim.job_id, claim.run_token, [step])


def _log(claim: Claim, what: str) -> None:
    log.info("attempt %s", what, extra=about(claim))
