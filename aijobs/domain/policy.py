"""From what happened to what is done about it: the only place where an attempt's end is decided.

The unknown policy is here. An outcome is *unknown* when the provider may have received the request and nobody can say
whether it did the work: repeating may pay twice, and failing may throw away what was paid for. So it is never guessed;
the job's own `on_unknown` says whether to repeat (a bounded number of times), to hold the job for a person, or to fail.
Before it is asked, whoever may know is: a provider that can say what became of the call, or that does the same request
only once however often it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from aijobs.domain.backoff import backoff_seconds
from aijobs.domain.claims import Allowance
from aijobs.domain.failures import ErrorClass, Failure

# A worker that dies before it sends anything costs no money, so such deaths are not counted against max_attempts; but a
# job that kills each worker it meets must end all the same.
MAX_UNSENT_DEATHS = 10
# A job that met a shut gate is back in line after about this long, and is left there until the gate opens.
GATE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How a kind spaces its repeats, in seconds; see backoff.backoff_seconds."""

    base_seconds: float = 2.0
    cap_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Back in line after a delay. `unknown` and `unsent_death` say which bounded allowance the repeat uses up."""

    delay_seconds: float
    counted: bool
    unknown: bool = False
    unsent_death: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Parked for a person. Always counted: the provider may have done the work."""

    code: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Over. `counted` as in Retry."""

    code: str
    counted: bool = True


Decision = Retry | Hold | Fail


def after_failure(job: Allowance, failure: Failure, backoff: Backoff, jitter: float) -> Decision:
    """What follows an attempt that reported its own failure. `jitter` is a uniform random number in [0, 1)."""
    match failure.error_class:
        case ErrorClass.PERMANENT:
            return Fail(failure.code)
        case ErrorClass.GATE:
            return Retry(GATE_SECONDS * (0.5 + jitter), counted=False)
        case ErrorClass.TRANSIENT:
            counted = not failure.refused
            if counted and _used_up(job):
                return Fail("attempts_exhausted")
            return Retry(_delay(job, failure, backoff, jitter), counted)
        case ErrorClass.UNKNOWN:
            return _after_unknown(
                job,
                _delay(job, failure, backoff, jitter),
                askable=failure.askable,
                deduplicated=failure.deduplicated,
                counted=not failure.refused,
            )


def unless_left_open(job_on_unknown: str, decision: Decision) -> Decision:
    """What becomes of a decision about a job that has a call whose outcome might still be learnt.

    Nothing is failed for want of attempts that a person is to look at before it is paid for again.
    """
    out_of_attempts = isinstance(decision, Fail) and decision.code in ("attempts_exhausted", "worker_lost")
    return Hold("outcome_unknown") if out_of_attempts and job_on_unknown == "hold" else decision


def after_death(
    job: Allowance,
    *,
    sent: bool,
    backoff: Backoff,
    jitter: float,
    askable: bool = False,
    deduplicated: bool = False,
) -> Decision:
    """What follows the death, or the silence, of the worker that held the job.

    The first repeat after a death is immediate: the worker was most likely just stopped. Later ones back off, so that a
    job that kills its workers does not take the whole fleet down in a hot loop.
    """
    deaths_before = job.unsent_deaths + job.unknown_retries
    delay = 0.0 if deaths_before == 0 else _spaced(deaths_before, backoff, jitter)
    if sent:
        return _after_unknown(job, delay, askable=askable, deduplicated=deduplicated)
    if job.unsent_deaths + 1 >= MAX_UNSENT_DEATHS:
        return Fail("worker_lost", counted=False)
    return Retry(delay, counted=False, unsent_death=True)


def _after_unknown(
    job: Allowance, delay_seconds: float, *, askable: bool, deduplicated: bool, counted: bool = True
) -> Decision:
    if askable:  # the next attempt asks and sends nothing, so that it is made even when the attempts are used up
        return Retry(delay_seconds, counted)
    if deduplicated and not _used_up(job):
        return Retry(delay_seconds, counted)
    if job.on_unknown == "fail":
        return Fail("outcome_unknown")
    if job.on_unknown == "hold":
        return Hold("outcome_unknown")
    if _used_up(job):
        return Fail("attempts_exhausted")
    if job.unknown_retries >= job.max_unknown_retries:
        return Hold("outcome_unknown")
    return Retry(delay_seconds, counted, unknown=True)


def _used_up(job: Allowance) -> bool:
    return job.attempts_counted + 1 >= job.max_attempts


def _delay(job: Allowance, failure: Failure, backoff: Backoff, jitter: float) -> float:
    return backoff_seconds(
        repeats=job.attempts - 1,
        base_seconds=backoff.base_seconds,
        cap_seconds=backoff.cap_seconds,
        jitter=jitter,
        at_least_seconds=failure.retry_after_seconds,
    )


def _spaced(repeats: int, backoff: Backoff, jitter: float) -> float:
    return backoff_seconds(
        repeats=repeats, base_seconds=backoff.base_seconds, cap_seconds=backoff.cap_seconds, jitter=jitter
    )
