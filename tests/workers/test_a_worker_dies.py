"""kill -9 at any moment: the job ends all the same, nothing is accepted twice, and what cannot be known is said so."""

from __future__ import annotations

import os
import signal
import time

import pytest

from aijobs.domain.jobs import JobStatus
from aijobs.domain.policy import MAX_UNSENT_DEATHS
from aijobs.store import jobs
from tests.workers.fleet import Fleet, children, wait_for

SLOW = "[[sim: marker={0} first_byte_ms=1500]]"
LEASE = 180  # the default, which nobody should have to wait for


def test_a_killed_workers_job_is_taken_up_again_long_before_its_lease(fleet: Fleet) -> None:
    supervisor = fleet.start(AIJOBS_LEASE_SECONDS=LEASE, AIJOBS_HEARTBEAT_SECONDS=45)
    job_id = fleet.submit(SLOW.format("m"))
    fleet.wait_until_sent(job_id)
    killed_at = time.monotonic()
    os.kill(fleet.owner(job_id), signal.SIGKILL)
    wait_for(lambda: fleet.job(job_id).attempts == 2, "the second claim", dump=fleet.last_lines)
    assert time.monotonic() - killed_at < LEASE / 10
    job = fleet.wait(job_id)
    assert job.status is JobStatus.SUCCEEDED
    first, second = fleet.attempts(job_id)
    assert (first["outcome"], first["error"]["code"]) == ("unknown", "worker_lost")
    assert (first["calls"][0]["outcome"], first["calls"][0]["cost_micros"]) == ("unknown", None)
    assert second["accepted"]
    assert fleet.simulator.paid("m") == 2
    wait_for(lambda: fleet.listening(supervisor) == 2, "the dead worker's replacement")


def test_a_dead_hosts_job_is_taken_up_when_its_lease_has_run_out(fleet: Fleet) -> None:
    dead = fleet.start(AIJOBS_PROCESSES=1)
    job_id = fleet.submit(SLOW.format("m"))
    fleet.wait_until_sent(job_id)
    fleet.start(AIJOBS_PROCESSES=1)
    os.killpg(dead.pid, signal.SIGKILL)
    assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
    assert fleet.job(job_id).attempts == 2


@pytest.mark.parametrize("fleet", ['on_unknown = "hold"'], indirect=True)
def test_where_policy_says_ask_a_death_after_sending_holds_the_job(fleet: Fleet) -> None:
    fleet.start()
    job_id = fleet.submit(SLOW.format("m"), on_unknown="hold")
    fleet.wait_until_sent(job_id)
    os.kill(fleet.owner(job_id), signal.SIGKILL)
    job = fleet.wait(job_id, JobStatus.HELD)
    assert job.error is not None
    assert job.error["code"] == "outcome_unknown"
    assert fleet.simulator.paid("m") == 1


def test_a_job_whose_cancel_was_asked_for_ends_as_cancelled_when_its_worker_dies(fleet: Fleet) -> None:
    fleet.start(AIJOBS_HEARTBEAT_SECONDS=1)
    job_id = fleet.submit("[[sim: marker=m hang=headers]]")
    fleet.wait_until_sent(job_id)
    owner = fleet.owner(job_id)
    os.kill(owner, signal.SIGSTOP)
    jobs.request_cancel(fleet.db, fleet.tenant, job_id)
    os.kill(owner, signal.SIGKILL)
    assert fleet.wait(job_id).status is JobStatus.CANCELLED
    assert len(fleet.simulator.calls("m")) == 1


def test_a_job_that_kills_each_of_its_workers_ends_and_the_others_go_on(fleet: Fleet) -> None:
    fleet.start()
    poison = fleet.submit("[[sim: marker=poison hang=headers]]", max_attempts=3, max_unknown_retries=10)
    others = [fleet.submit("[[sim: delta_ms=5]]", max_unknown_retries=10) for _ in range(20)]
    for attempt in (1, 2, 3):
        fleet.wait_until_sent(poison, attempt)
        os.kill(fleet.owner(poison), signal.SIGKILL)
    job = fleet.wait(poison)
    assert job.error is not None
    assert (job.status, job.error["code"]) == (JobStatus.FAILED, "attempts_exhausted")
    attempts = fleet.attempts(poison)
    assert [attempt["error"]["code"] for attempt in attempts] == ["worker_lost"] * 3
    assert {fleet.wait(job_id).status for job_id in others} == {JobStatus.SUCCEEDED}


def test_a_job_that_kills_its_workers_before_they_send_ends_too(fleet: Fleet) -> None:
    """Nothing was sent, so nothing is counted against max_attempts; deaths are bounded apart."""
    fleet.config.write_text(
        fleet.config.read_text() + '\n[kinds.crash]\nhandler = "tests.workers.handlers:crash"\nbackoff_seconds = 0.02\n'
    )
    fleet.start(AIJOBS_PROCESSES=5)  # each place is refilled ever more slowly, so that a crash is no hot loop
    job = fleet.wait(fleet.submit(kind="crash", max_attempts=1), seconds=60)
    assert job.error is not None
    assert (job.status, job.error["code"], job.attempts) == (JobStatus.FAILED, "worker_lost", MAX_UNSENT_DEATHS)


def test_a_paused_worker_that_wakes_up_late_changes_nothing_and_stays_useful(fleet: Fleet) -> None:
    """SIGSTOP of a whole supervisor, past the lease: when it goes on, its job has been run by somebody else."""
    paused = fleet.start(AIJOBS_PROCESSES=1)
    job_id = fleet.submit("[[sim: marker=m first_byte_ms=3200]]")
    fleet.wait_until_sent(job_id)
    os.killpg(paused.pid, signal.SIGSTOP)
    other = fleet.start(AIJOBS_PROCESSES=1)
    fleet.simulator.calls()
    job = fleet.wait(job_id, seconds=40)
    before = fleet.rows("SELECT to_jsonb(j) AS j FROM ai_jobs j WHERE id = %s", job_id)
    assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 2)
    os.killpg(paused.pid, signal.SIGCONT)
    fleet.stop(other)
    after = fleet.submit("hello")
    assert fleet.wait(after).status is JobStatus.SUCCEEDED
    assert fleet.rows("SELECT to_jsonb(j) AS j FROM ai_jobs j WHERE id = %s", job_id) == before
    assert len(fleet.simulator.calls("m")) == 2


def test_a_long_job_on_the_shortest_lease_is_run_once(fleet: Fleet) -> None:
    fleet.start(
        AIJOBS_LEASE_SECONDS=0.6,
        AIJOBS_HEARTBEAT_SECONDS=0.15,
        AIJOBS_PROCESSES=4,
        AIJOBS_REAP_SECONDS=0.2,
        AIJOBS_POLL_SECONDS=0.3,
    )
    job_id = fleet.submit("[[sim: marker=m first_byte_ms=4000]]")
    job = fleet.wait(job_id)
    assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 1)
    assert len(fleet.simulator.calls("m")) == 1


def test_when_the_supervisor_is_killed_its_children_drain_and_end(fleet: Fleet) -> None:
    supervisor = fleet.start()
    job_id = fleet.submit(SLOW.format("m"))
    fleet.wait_until_sent(job_id)
    orphans = children(supervisor.pid)
    os.kill(supervisor.pid, signal.SIGKILL)
    assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
    assert fleet.simulator.paid("m") == 1
    wait_for(lambda: not any(_alive(pid) for pid in orphans), "the orphans' end")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
