"""SIGTERM: nothing new is begun, what runs may finish, and nothing is left to a lease."""

from __future__ import annotations

import os
import signal
import time

from aijobs.domain.jobs import JobStatus
from aijobs.store import jobs
from tests.workers.fleet import Fleet, wait_for


def test_running_jobs_finish_and_no_new_one_is_claimed(fleet: Fleet) -> None:
    supervisor = fleet.start(AIJOBS_PROCESSES=1)
    running = fleet.submit("[[sim: marker=m first_byte_ms=1200]]")
    fleet.wait_until_sent(running)
    supervisor.terminate()
    time.sleep(0.3)
    waiting = fleet.submit("hello")
    assert supervisor.wait(20) == 0
    assert fleet.job(running).status is JobStatus.SUCCEEDED
    assert fleet.job(waiting).status is JobStatus.QUEUED


def test_the_lease_is_extended_while_draining(fleet: Fleet) -> None:
    """A job longer than the lease, another worker idle: the draining worker must be the only one that runs it."""
    draining = fleet.start(AIJOBS_PROCESSES=1, AIJOBS_DRAIN_SECONDS=20)
    job_id = fleet.submit("[[sim: marker=m first_byte_ms=4800]]")
    fleet.wait_until_sent(job_id)
    fleet.start(AIJOBS_PROCESSES=1)
    draining.terminate()
    assert draining.wait(25) == 0
    job = fleet.job(job_id)
    assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 1)
    assert len(fleet.simulator.calls("m")) == 1


def test_a_cancel_is_heard_while_draining(fleet: Fleet) -> None:
    draining = fleet.start(AIJOBS_PROCESSES=1, AIJOBS_DRAIN_SECONDS=60)
    job_id = fleet.submit("[[sim: marker=m hang=headers]]")
    fleet.wait_until_sent(job_id)
    draining.terminate()
    time.sleep(0.2)
    jobs.request_cancel(fleet.db, fleet.tenant, job_id)
    assert draining.wait(10) == 0
    assert fleet.job(job_id).status is JobStatus.CANCELLED


def test_at_the_deadline_what_is_left_is_settled_before_the_exit(fleet: Fleet) -> None:
    supervisor = fleet.start(
        AIJOBS_PROCESSES=1, AIJOBS_DRAIN_SECONDS=1, AIJOBS_LEASE_SECONDS=180, AIJOBS_HEARTBEAT_SECONDS=45
    )
    job_id = fleet.submit("[[sim: marker=m hang=headers]]")
    fleet.wait_until_sent(job_id)
    started = time.monotonic()
    assert fleet.stop(supervisor) == 0
    assert time.monotonic() - started < 5
    job = fleet.job(job_id)
    assert job.status is JobStatus.QUEUED
    (attempt,) = fleet.attempts(job_id)
    assert (attempt["outcome"], attempt["error"]["code"]) == ("unknown", "aborted_drain")
    assert fleet.rows("SELECT count(*) AS n FROM ai_jobs WHERE worker_id IS NOT NULL") == [{"n": 0}]


def test_a_second_signal_hurries(fleet: Fleet) -> None:
    supervisor = fleet.start(AIJOBS_PROCESSES=2, AIJOBS_DRAIN_SECONDS=60)
    job_id = fleet.submit("[[sim: marker=m hang=headers]]")
    fleet.wait_until_sent(job_id)
    supervisor.terminate()
    time.sleep(0.5)
    started = time.monotonic()
    supervisor.terminate()
    assert supervisor.wait(10) == 0
    assert time.monotonic() - started < 4
    assert fleet.job(job_id).status is JobStatus.QUEUED


def test_a_signal_to_the_whole_group_is_one_request_and_not_two(fleet: Fleet) -> None:
    supervisor = fleet.start(AIJOBS_DRAIN_SECONDS=30)
    job_id = fleet.submit("[[sim: marker=m first_byte_ms=1500]]")
    fleet.wait_until_sent(job_id)
    os.killpg(supervisor.pid, signal.SIGINT)
    assert supervisor.wait(20) == 0
    assert fleet.job(job_id).status is JobStatus.SUCCEEDED


def test_one_child_told_to_end_drains_and_is_replaced(fleet: Fleet) -> None:
    supervisor = fleet.start()
    job_id = fleet.submit("[[sim: marker=m first_byte_ms=1500]]")
    fleet.wait_until_sent(job_id)
    owner = fleet.owner(job_id)
    os.kill(owner, signal.SIGTERM)
    assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
    assert fleet.job(job_id).attempts == 1
    wait_for(lambda: fleet.listening(supervisor) == 2, "the replacement")
    assert fleet.stop(supervisor) == 0


def test_a_handler_that_does_not_stop_is_left_behind_and_its_job_given_back(fleet: Fleet) -> None:
    fleet.config.write_text(fleet.config.read_text() + '\n[kinds.odd]\nhandler = "tests.workers.handlers:odd"\n')
    supervisor = fleet.start(
        AIJOBS_PROCESSES=1, AIJOBS_DRAIN_SECONDS=0.5, AIJOBS_LEASE_SECONDS=180, AIJOBS_HEARTBEAT_SECONDS=45
    )
    job_id = fleet.submit(kind="odd", payload_json='{"sleep": 60}')
    wait_for(lambda: fleet.job(job_id).status is JobStatus.RUNNING, "the handler")
    assert fleet.stop(supervisor) == 0
    job = fleet.job(job_id)
    assert job.status is JobStatus.QUEUED
    assert fleet.attempts(job_id)[0]["outcome"] == "released"
