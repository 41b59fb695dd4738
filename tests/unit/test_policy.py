"""What follows each kind of end of an attempt."""

from __future__ import annotations

from typing import Any

import pytest

from aijobs.domain.claims import Allowance
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.domain.policy import MAX_UNSENT_DEATHS, Backoff, Fail, Hold, Retry, after_death, after_failure


def job(**given: Any) -> Allowance:
    fresh: dict[str, Any] = {
        "attempts": 1,
        "max_attempts": 3,
        "attempts_counted": 0,
        "on_unknown": "retry",
        "unknown_retries": 0,
        "max_unknown_retries": 1,
        "unsent_deaths": 0,
    }
    return Allowance(**(fresh | given))


def end(allowance: Allowance, error_class: ErrorClass, **given: Any) -> Retry | Hold | Fail:
    return after_failure(allowance, Failure(error_class, "some_code", "", **given), Backoff(2.0, 300.0), 0.5)


def test_a_permanent_error_fails_at_once_under_its_own_code() -> None:
    assert end(job(), ErrorClass.PERMANENT) == Fail("some_code")


def test_a_transient_error_is_repeated_until_attempts_are_used_up() -> None:
    assert end(job(), ErrorClass.TRANSIENT) == Retry(1.0, counted=True)
    assert end(job(attempts=3, attempts_counted=2), ErrorClass.TRANSIENT) == Fail("attempts_exhausted")


def test_a_refusal_by_the_provider_costs_no_attempt_and_keeps_its_retry_after() -> None:
    decision = end(job(attempts=9, attempts_counted=2), ErrorClass.TRANSIENT, refused=True, retry_after_seconds=30.0)
    assert decision == Retry(31.0, counted=False)


def test_a_shut_gate_costs_no_attempt() -> None:
    decision = end(job(attempts_counted=2), ErrorClass.GATE, refused=True)
    assert isinstance(decision, Retry)
    assert not decision.counted
    assert 2 <= decision.delay_seconds <= 8


@pytest.mark.parametrize(
    ("allowance", "decision"),
    [
        (job(on_unknown="fail"), Fail("outcome_unknown")),
        (job(on_unknown="hold"), Hold("outcome_unknown")),
        (job(), Retry(1.0, counted=True, unknown=True)),
        (job(attempts=2, attempts_counted=1, unknown_retries=1), Hold("outcome_unknown")),
        (job(attempts=3, attempts_counted=2), Fail("attempts_exhausted")),
        (job(max_unknown_retries=0), Hold("outcome_unknown")),
    ],
)
def test_an_unknown_outcome_is_decided_by_the_jobs_own_policy(allowance: Allowance, decision: Any) -> None:
    assert end(allowance, ErrorClass.UNKNOWN) == decision


def test_the_first_repeat_after_a_death_is_immediate_and_later_ones_back_off() -> None:
    first = after_death(job(), sent=False, backoff=Backoff(), jitter=0.5)
    assert first == Retry(0.0, counted=False, unsent_death=True)
    second = after_death(job(attempts=2, unsent_deaths=1), sent=False, backoff=Backoff(), jitter=0.5)
    assert isinstance(second, Retry)
    assert second.delay_seconds > 0


def test_a_job_that_kills_each_worker_before_it_sends_ends_all_the_same() -> None:
    decision = after_death(job(unsent_deaths=MAX_UNSENT_DEATHS - 1), sent=False, backoff=Backoff(), jitter=0.5)
    assert decision == Fail("worker_lost", counted=False)


def test_a_death_after_sending_follows_the_unknown_policy() -> None:
    assert after_death(job(), sent=True, backoff=Backoff(), jitter=0.5) == Retry(0.0, counted=True, unknown=True)
    assert after_death(job(on_unknown="hold"), sent=True, backoff=Backoff(), jitter=0.5) == Hold("outcome_unknown")
    assert after_death(job(on_unknown="fail"), sent=True, backoff=Backoff(), jitter=0.5) == Fail("outcome_unknown")
