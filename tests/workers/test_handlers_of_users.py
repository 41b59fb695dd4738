"""What a handler may do, and what becomes of its job when it does what it should not."""

from __future__ import annotations

import os
import signal

import pytest

from aijobs.domain.jobs import JobStatus
from tests.workers.fleet import Fleet, audit, wait_for

CONFIG = """
[kinds.steps]
handler = "tests.workers.handlers:steps"
provider = "sim"
model = "simulated"
on_unknown = "retry"
backoff_seconds = 0.1

[kinds.swallow]
handler = "tests.workers.handlers:swallow"
provider = "sim"
model = "simulated"

[kinds.stubborn]
handler = "tests.workers.handlers:stubborn"
attempt_seconds = 1
backoff_seconds = 0.1

[kinds.isolated]
handler = "tests.workers.handlers:isolated"
isolate = true
memory_mib = 128
attempt_seconds = 1
backoff_seconds = 0.1
"""


@pytest.fixture
def handlers(fleet: Fleet) -> Fleet:
    fleet.config.write_text(fleet.config.read_text() + CONFIG)
    return fleet


def prompts(*scripts: str) -> str:
    listed = ", ".join(f'"part [[sim: {script}]]"' for script in scripts)
    return f'"prompts": [{listed}]'


def test_killed_in_the_third_of_three_paid_steps_the_first_two_are_paid_once(handlers: Fleet) -> None:
    handlers.start(AIJOBS_PROCESSES=1)
    payload = "{" + prompts("marker=a", "marker=b", "marker=c first_byte_ms=1500 times=1") + "}"
    job_id = handlers.submit(kind="steps", payload_json=payload)
    wait_for(
        lambda: any(call["step"] == "step3" for row in handlers.attempts(job_id) for call in row["calls"]), "step 3"
    )
    wait_for(lambda: bool(handlers.rows("SELECT seq FROM ai_events WHERE type = 'job.output.delta'")), "its output")
    os.kill(handlers.owner(job_id), signal.SIGKILL)
    job = handlers.wait(job_id)
    assert job.status is JobStatus.SUCCEEDED and job.result is not None and job.result["attempt"] == 2
    assert [handlers.simulator.paid(marker) for marker in "ab"] == [1, 1]
    assert job.progress == {"done": 3}
    accepted = handlers.rows("SELECT step, attempt FROM ai_calls WHERE accepted ORDER BY step")
    assert [(row["step"], row["attempt"]) for row in accepted] == [("step1", 1), ("step2", 1), ("step3", 2)]
    text = handlers.rows("SELECT type, data FROM ai_events WHERE type LIKE 'job.output%%' ORDER BY seq")
    since = max(number for number, row in enumerate(text) if row["type"] == "job.output.reset")
    assert "".join(row["data"]["text"] for row in text[since + 1 :]) == "1;2;3;"
    audit(handlers)


def test_a_transient_error_is_tried_again_and_pays_nothing_again(handlers: Fleet) -> None:
    handlers.start(AIJOBS_PROCESSES=1)
    job_id = handlers.submit(kind="steps", payload_json="{" + prompts("marker=a") + ', "transient": 2}')
    job = handlers.wait(job_id)
    assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 3)
    assert handlers.simulator.paid("a") == 1
    assert [row["error"]["code"] for row in handlers.attempts(job_id)[:2]] == ["handler_retry"] * 2


def test_a_refused_answer_is_paid_for_again_on_purpose(handlers: Fleet) -> None:
    handlers.start(AIJOBS_PROCESSES=1)
    job_id = handlers.submit(kind="steps", payload_json="{" + prompts("marker=a", "marker=b") + ', "reject": 1}')
    job = handlers.wait(job_id)
    assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 2)
    assert [handlers.simulator.paid(marker) for marker in "ab"] == [2, 1]
    assert handlers.attempts(job_id)[0]["error"]["code"] == "output_rejected"
    rejected = handlers.rows("SELECT step, attempt, accepted FROM ai_calls WHERE rejected")
    assert rejected == [{"step": "step1", "attempt": 1, "accepted": False}]


def test_an_unknown_outcome_that_a_handler_swallows_is_not_repeated_by_that(handlers: Fleet) -> None:
    handlers.start(AIJOBS_PROCESSES=1)
    payload = '{"prompt": "x [[sim: marker=m close=headers]]"}'
    job_id = handlers.submit(kind="swallow", payload_json=payload, on_unknown="hold")
    job = handlers.wait(job_id, JobStatus.HELD, JobStatus.FAILED)
    assert job.status is JobStatus.HELD
    assert handlers.simulator.paid("m") == 1


@pytest.mark.parametrize("how", ["compute", "sleep", "ignore"])
def test_a_handler_that_does_not_stop_harms_only_its_own_job(handlers: Fleet, how: str) -> None:
    supervisor = handlers.start(AIJOBS_PROCESSES=1, AIJOBS_THREADS=2)
    odd = handlers.submit(kind="stubborn", payload_json=f'{{"how": "{how}"}}')
    wait_for(lambda: handlers.job(odd).status is JobStatus.RUNNING, "the handler to run")
    others = [handlers.submit("[[sim: marker=m]]") for _ in range(5)]
    assert {handlers.wait(job_id).status for job_id in others} == {JobStatus.SUCCEEDED}
    job = handlers.wait(odd, seconds=40)
    assert (job.status, job.result) == (JobStatus.SUCCEEDED, {"attempt": 2})
    first = handlers.attempts(odd)[0]
    assert (first["outcome"], first["error"]["code"]) == ("failed", "handler_overran")
    assert handlers.simulator.paid("m") == 5
    assert supervisor.poll() is None
    audit(handlers)


@pytest.mark.parametrize(("how", "code"), [("exit", "worker_lost"), ("memory", "handler_error")])
def test_an_isolated_handler_takes_nobody_with_it(handlers: Fleet, how: str, code: str) -> None:
    handlers.start(AIJOBS_PROCESSES=1, AIJOBS_THREADS=4)
    running = [handlers.submit("[[sim: marker=m first_byte_ms=1500]]") for _ in range(3)]
    for job_id in running:
        handlers.wait_until_sent(job_id)
    odd = handlers.submit(kind="isolated", payload_json=f'{{"how": "{how}"}}')
    job = handlers.wait(odd)
    assert job.status is JobStatus.SUCCEEDED and job.attempts == 2
    assert handlers.attempts(odd)[0]["error"]["code"] == code
    assert {handlers.wait(job_id).attempts for job_id in running} == {1}
    workers = {row["worker_id"] for row in handlers.rows("SELECT worker_id FROM ai_attempts WHERE job_id = %s", odd)}
    shared = {row["worker_id"] for row in handlers.rows("SELECT worker_id FROM ai_attempts WHERE job_id <> %s", odd)}
    assert not workers & shared
    audit(handlers)


def test_an_isolated_handler_that_hangs_is_replaced(handlers: Fleet) -> None:
    handlers.start(AIJOBS_PROCESSES=1)
    odd = handlers.submit(kind="isolated", payload_json='{"how": "hang"}')
    job = handlers.wait(odd, seconds=40)
    assert job.status is JobStatus.SUCCEEDED and job.attempts == 2
    assert handlers.attempts(odd)[0]["error"]["code"] == "handler_overran"
