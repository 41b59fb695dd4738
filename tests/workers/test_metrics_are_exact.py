"""Counters survive forks and SIGTERM exactly."""

from __future__ import annotations

import os
import signal

from tests.unit.statsd_sink import StatsdSink
from tests.workers.fleet import Fleet


def test_a_hundred_jobs_through_four_workers_are_counted_a_hundred_times(fleet: Fleet) -> None:
    with StatsdSink() as sink:
        supervisor = fleet.start(AIJOBS_PROCESSES=4, AIJOBS_STATSD=sink.address)
        jobs = [fleet.submit("[[sim: delta_ms=1]]") for _ in range(100)]
        for job_id in jobs:
            fleet.wait(job_id)
        assert fleet.stop(supervisor) == 0
        sink.wait_for("aijobs.jobs_accepted", 100)
    assert sink.counters["aijobs.jobs_accepted"] == 100
    assert sink.counters["aijobs.provider_attempts"] == 100
    assert sink.counters["aijobs.provider.sim.simulated.outcome.succeeded"] == 100
    assert len(sink.timers["aijobs.queue_wait"]) == 100


def test_a_statsd_that_does_not_exist_stops_nothing(fleet: Fleet) -> None:
    fleet.start(AIJOBS_STATSD="does-not-exist.invalid:8125")
    assert fleet.wait(fleet.submit("hello")).status == "succeeded"


def test_what_follows_a_death_is_counted_too(fleet: Fleet) -> None:
    with StatsdSink() as sink:
        fleet.start(AIJOBS_STATSD=sink.address)
        job_id = fleet.submit("[[sim: first_byte_ms=1000]]")
        fleet.wait_until_sent(job_id)
        os.kill(fleet.owner(job_id), signal.SIGKILL)
        fleet.wait(job_id)
        sink.wait_for("aijobs.job_retries", 1)
        sink.wait_for("aijobs.provider_unknown_outcomes", 1)
