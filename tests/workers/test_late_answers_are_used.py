"""A worker that stood still beyond its lease brings its answer late: it is used, and not bought again."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from aijobs.domain.jobs import JobStatus
from tests.workers.fleet import Fleet, audit, wait_for


def stand_still(fleet: Fleet, *scripts: str, **given: object) -> tuple[subprocess.Popen[bytes], list[object]]:
    """Jobs whose requests are out, of workers that then stand still until their leases have run out."""
    stale = fleet.start(AIJOBS_PROCESSES=1)
    jobs = [fleet.submit(script, **given) for script in scripts]  # type: ignore[arg-type]
    for job_id in jobs:
        fleet.wait_until_sent(job_id)
    os.killpg(stale.pid, signal.SIGSTOP)
    return stale, list(jobs)


def test_it_brings_a_held_job_back_and_is_its_result(fleet: Fleet) -> None:
    stale, (job_id,) = stand_still(fleet, "[[sim: marker=m text=late first_byte_ms=500]]", on_unknown="hold")
    fleet.start(AIJOBS_PROCESSES=1, AIJOBS_REAP_SECONDS=0.3)
    assert fleet.wait(job_id, JobStatus.HELD).status is JobStatus.HELD  # type: ignore[arg-type]
    os.killpg(stale.pid, signal.SIGCONT)
    job = fleet.wait(job_id)  # type: ignore[arg-type]
    assert (job.status, job.result["text"], job.attempts) == (JobStatus.SUCCEEDED, "late", 2)
    assert fleet.simulator.paid("m") == 1
    first, second = fleet.attempts(job_id)  # type: ignore[arg-type]
    assert first["outcome"] == "unknown" and not first["accepted"]
    (call,) = first["calls"]
    assert (call["outcome"], call["late"], call["accepted"]) == ("succeeded", True, True)
    assert second["accepted"] and second["calls"] == []
    audit(fleet)


@pytest.mark.parametrize("successor", ["succeeds", "fails"])
def test_it_never_changes_what_its_successor_does(fleet: Fleet, successor: str) -> None:
    """The successor's own call is under way when the late answer comes; it is used if that call brings nothing."""
    fault = "" if successor == "succeeds" else " cut_after=0"
    script = f"[[sim: marker=m text=x first_byte_ms=2500{fault}]]"
    stale, (job_id,) = stand_still(fleet, script, max_attempts=2, max_unknown_retries=1)
    fleet.start(AIJOBS_PROCESSES=1, AIJOBS_REAP_SECONDS=0.3)
    fleet.wait_until_sent(job_id, attempt=2)  # type: ignore[arg-type]
    fleet.rows(
        "UPDATE ai_calls SET outcome = 'succeeded', late = true, error = NULL,"
        ' result = \'{"text": "late", "finish_reason": "stop", "model": "m"}\' WHERE attempt = 1 RETURNING job_id'
    )
    os.killpg(stale.pid, signal.SIGKILL)
    job = fleet.wait(job_id)  # type: ignore[arg-type]
    assert job.status is JobStatus.SUCCEEDED
    expected = ("x", 2) if successor == "succeeds" else ("late", 3)
    assert (job.result["text"], job.attempts) == expected
    assert fleet.simulator.paid("m") == 2
    wait_for(lambda: fleet.job(job_id).finished_at is not None, "the end")  # type: ignore[arg-type]
    audit(fleet)
