"""A call whose answer was lost is asked about before anybody decides whether to pay again."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from typing import Any
from uuid import UUID

import pytest

from aijobs.domain.jobs import JobStatus
from tests.workers.fleet import Fleet, audit, wait_for

CONFIG = """
[providers.background]
adapter = "openai-responses"
base_url = "{url}"
ask_seconds = 20

[providers.stored]
adapter = "openai-chat"
base_url = "{url}"
stored = true

[kinds.background]
uses = "chat"
provider = "background"
model = "simulated"
backoff_seconds = 0.2
attempt_seconds = 5

[kinds.fickle]
handler = "tests.workers.handlers:fickle"
provider = "background"
model = "simulated"
backoff_seconds = 0.2

[kinds.stored]
uses = "chat"
provider = "stored"
model = "simulated"
backoff_seconds = 0.2
"""


@pytest.fixture
def asking(fleet: Fleet) -> Fleet:
    fleet.config.write_text(fleet.config.read_text() + CONFIG.format(url=fleet.simulator.url))
    return fleet


def submit(fleet: Fleet, kind: str, script: str, **given: Any) -> UUID:
    return fleet.submit(f"[[sim: marker=m text=kept {script}]]", kind=kind, provider=kind, **given)


def wait_until_named(fleet: Fleet, job_id: UUID) -> str:
    """The provider's id of the job's call, as soon as it is stored."""

    def names() -> list[str]:
        return [call["provider_operation_id"] for row in fleet.attempts(job_id) for call in row["calls"]]

    wait_for(lambda: any(names()), "an id", dump=fleet.last_lines)
    return str(names()[0])


def response(fleet: Fleet, name: str) -> Any:
    with urllib.request.urlopen(f"{fleet.simulator.url}/responses/{name}", timeout=5) as reply:
        return json.load(reply)


@pytest.mark.parametrize("on_unknown", ["retry", "hold", "fail"])
@pytest.mark.parametrize("kind", ["background", "stored"])
def test_a_dead_workers_call_is_found_whatever_the_policy(asking: Fleet, kind: str, on_unknown: str) -> None:
    asking.start()
    job_id = submit(asking, kind, "first_byte_ms=100 delta_ms=1200", on_unknown=on_unknown, max_attempts=1)
    if kind == "background":
        wait_until_named(asking, job_id)
    else:
        wait_for(lambda: len(asking.simulator.calls("m")) == 1, "the request at the provider")
    os.kill(asking.owner(job_id), signal.SIGKILL)
    job = asking.wait(job_id, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.HELD)
    assert (job.status, job.result and job.result["text"]) == (JobStatus.SUCCEEDED, "kept")
    assert asking.simulator.paid("m") == 1
    first, *others = asking.attempts(job_id)
    assert first["outcome"] == "unknown" and first["counted"] and not any(row["counted"] for row in others)
    (call,) = first["calls"]
    assert (call["outcome"], call["late"], call["accepted"]) == ("succeeded", True, True)
    assert call["usage"]["output_tokens"] == 1
    audit(asking)


def test_a_drain_leaves_the_work_at_the_provider_and_the_next_worker_fetches_it(asking: Fleet) -> None:
    leaving = asking.start(AIJOBS_PROCESSES=1, AIJOBS_DRAIN_SECONDS=0.3)
    job_id = submit(asking, "background", "delta_ms=3000", on_unknown="hold")
    wait_until_named(asking, job_id)
    assert asking.stop(leaving) == 0
    assert asking.job(job_id).status is JobStatus.QUEUED
    asking.start(AIJOBS_PROCESSES=1)
    assert asking.wait(job_id).status is JobStatus.SUCCEEDED
    assert asking.simulator.paid("m") == 1
    audit(asking)


def test_work_that_outlasts_its_attempts_is_asked_for_until_it_is_done(asking: Fleet) -> None:
    asking.start(AIJOBS_PROCESSES=1)
    job_id = submit(asking, "background", "delta_ms=7000", max_attempts=1, on_unknown="fail")
    job = asking.wait(job_id)
    assert (job.status, job.result and job.result["text"]) == (JobStatus.SUCCEEDED, "kept")
    assert asking.simulator.paid("m") == 1 and job.attempts >= 2
    assert asking.rows("SELECT attempts_counted AS n FROM ai_jobs") == [{"n": 1}]
    audit(asking)


@pytest.mark.parametrize(("on_unknown", "status"), [("hold", "held"), ("fail", "failed"), ("retry", "succeeded")])
def test_where_the_provider_cannot_say_policy_speaks(asking: Fleet, on_unknown: str, status: str) -> None:
    first = asking.start(AIJOBS_PROCESSES=1)
    job_id = submit(asking, "background", "delta_ms=1500", on_unknown=on_unknown)
    wait_until_named(asking, job_id)
    os.killpg(first.pid, signal.SIGKILL)
    asking.rows("UPDATE ai_calls SET provider_operation_id = 'resp_nobody_knows' RETURNING job_id")
    asking.rows("UPDATE ai_jobs SET lease_until = now() RETURNING id")
    asking.start(AIJOBS_PROCESSES=1, AIJOBS_REAP_SECONDS=0.3)
    job = asking.wait(job_id, JobStatus(status))
    assert asking.simulator.paid("m") == (2 if on_unknown == "retry" else 1)
    if on_unknown != "retry":
        assert job.error is not None and job.error["code"] == "outcome_unknown"
    call = asking.attempts(job_id)[0]["calls"][0]
    assert call["outcome"] == "unknown" and call["asked_at"] is not None
    audit(asking)


def test_a_cancel_stops_the_work_at_the_provider(asking: Fleet) -> None:
    asking.start(AIJOBS_PROCESSES=1)
    job_id = submit(asking, "background", "delta_ms=20000")
    name = wait_until_named(asking, job_id)
    from aijobs.store import jobs

    jobs.request_cancel(asking.db, asking.tenant, job_id)
    assert asking.wait(job_id).status is JobStatus.CANCELLED
    assert response(asking, name)["status"] == "cancelled"
    (call,) = asking.attempts(job_id)[0]["calls"]
    assert (call["outcome"], call["provider_cancel"]) == ("unknown", "confirmed")
    types = [row["type"] for row in asking.rows("SELECT type FROM ai_events ORDER BY seq")]
    assert types[-4:] == ["job.cancel_requested", "call.cancel_confirmed", "job.attempt_ended", "job.cancelled"]
    audit(asking)


def test_a_cancel_reaches_the_provider_also_when_no_worker_holds_the_job(asking: Fleet) -> None:
    leaving = asking.start(AIJOBS_PROCESSES=1, AIJOBS_DRAIN_SECONDS=0.3)
    job_id = submit(asking, "background", "delta_ms=60000", on_unknown="hold")
    name = wait_until_named(asking, job_id)
    assert asking.stop(leaving) == 0
    from aijobs.store import jobs

    job = jobs.request_cancel(asking.db, asking.tenant, job_id)
    assert job is not None and job.status is JobStatus.CANCELLED
    asking.start(AIJOBS_PROCESSES=1, AIJOBS_REAP_SECONDS=0.3)
    wait_for(lambda: response(asking, name)["status"] == "cancelled", "the provider's stop", dump=asking.last_lines)
    wait_for(lambda: asking.attempts(job_id)[0]["calls"][0]["provider_cancel"] == "confirmed", "its record")
    audit(asking)


def test_what_is_not_done_in_time_is_cancelled_and_given_up(asking: Fleet) -> None:
    asking.config.write_text(asking.config.read_text().replace("ask_seconds = 20", "ask_seconds = 3"))
    asking.start(AIJOBS_PROCESSES=1)
    job_id = submit(asking, "background", "delta_ms=60000", on_unknown="hold")
    name = wait_until_named(asking, job_id)
    job = asking.wait(job_id, JobStatus.HELD, seconds=40)
    assert job.error is not None and job.error["code"] == "outcome_unknown"
    assert response(asking, name)["status"] == "cancelled"
    assert asking.attempts(job_id)[0]["calls"][0]["provider_cancel"] == "confirmed"
    audit(asking)


def lose_a_call(asking: Fleet, how: str, **given: Any) -> UUID:
    """A job whose first attempt was killed with its call at the provider."""
    asking.start(AIJOBS_PROCESSES=1)
    prompt = "[[sim: marker=m text=kept delta_ms=1500]]"
    job_id = asking.submit(kind="fickle", payload_json=json.dumps({"prompt": prompt, "how": how}), **given)
    wait_until_named(asking, job_id)
    os.kill(asking.owner(job_id), signal.SIGKILL)
    return job_id


@pytest.mark.parametrize(("on_unknown", "status"), [("hold", "held"), ("fail", "failed"), ("retry", "succeeded")])
def test_an_attempt_that_asks_for_something_else_does_not_buy_behind_the_policys_back(
    asking: Fleet, on_unknown: str, status: str
) -> None:
    job_id = lose_a_call(asking, "other", on_unknown=on_unknown)
    job = asking.wait(job_id, JobStatus(status))
    assert asking.simulator.paid("m") == (2 if on_unknown == "retry" else 1)
    if on_unknown == "retry":
        assert asking.rows("SELECT unknown_retries AS n FROM ai_jobs") == [{"n": 1}]
    else:
        assert job.error is not None and job.error["code"] == "outcome_unknown"
    (call,) = asking.attempts(job_id)[0]["calls"]
    assert call["outcome"] == "unknown" and call["asked_at"] is not None
    audit(asking)


@pytest.mark.parametrize(
    ("max_attempts", "on_unknown", "status"),
    [(1, "hold", "held"), (1, "retry", "failed"), (3, "hold", "succeeded"), (3, "fail", "succeeded")],
)
def test_an_attempt_that_does_not_come_to_the_call_leaves_it_to_the_next(
    asking: Fleet, max_attempts: int, on_unknown: str, status: str
) -> None:
    job_id = lose_a_call(asking, "raise", on_unknown=on_unknown, max_attempts=max_attempts)
    job = asking.wait(job_id, JobStatus(status))
    assert asking.simulator.paid("m") == 1
    if status == "succeeded":
        assert job.result == {"text": "kept"}
    else:
        assert job.error is not None
        assert job.error["code"] == ("outcome_unknown" if status == "held" else "attempts_exhausted")
    audit(asking)
