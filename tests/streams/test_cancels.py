"""A cancel is a commitment, and stops the provider's work within a moment."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

from aijobs.domain.jobs import JobStatus
from tests.streams.site import Site, in_threads
from tests.workers.fleet import Fleet, wait_for

CANCELS = 500


def test_a_running_jobs_connection_is_closed_long_before_a_heartbeat(
    make_site: Callable[..., Site], fleet: Fleet
) -> None:
    fleet.start(AIJOBS_LEASE_SECONDS=120, AIJOBS_HEARTBEAT_SECONDS=40)
    site = make_site(AIJOBS_WEB_PROCESSES="1")
    for phase in ("first_byte_ms=60000", "tokens=100 delta_ms=1000"):
        job_id = site.submit(f"marker={phase[:5]} {phase}")
        site.fleet.wait_until_sent(job_id)
        time.sleep(0.5)
        started = time.monotonic()
        answered = site.cancel(job_id)
        assert (answered.status, answered.json["cancel_requested"]) == (202, True)

        def closed(marker: str = phase[:5]) -> bool:
            return any(call["peer_closed_at"] for call in site.fleet.simulator.calls(marker))

        wait_for(closed, "the closed connection", 10.0)
        assert site.fleet.wait(job_id).status is JobStatus.CANCELLED
        assert time.monotonic() - started < 12
        with site.stream(job_id) as stream:
            types = [event["type"] for event in stream.events()]
        assert types[-4:] == [
            "job.cancel_requested",
            "call.cancel_unsupported",
            "job.attempt_ended",
            "job.cancelled",
        ], types


def test_an_answer_to_a_cancel_and_the_end_never_disagree(site: Site) -> None:
    """Cancels at about the moment of completion: whichever comes first, what is said of it stays true."""
    dice = random.Random(20261204)
    jobs = [site.submit("text=x first_byte_ms=700") for _ in range(8)]
    answers: dict[UUID, tuple[int, str]] = {}

    def one(number: int) -> None:
        job_id = site.submit("text=x first_byte_ms=300")
        give_up_at = time.monotonic() + 30
        while site.get(job_id)["status"] == "queued" and time.monotonic() < give_up_at:
            time.sleep(0.01)
        time.sleep(max(0.0, 0.3 + dice.uniform(-0.05, 0.05) + skew[0]))
        answered = site.cancel(job_id)
        answers[job_id] = (answered.status, answered.json["status"])
        # Keep the coin fair on a machine of whatever speed: aim later after a cancel, earlier after a success.
        skew[0] += 0.003 if answered.json["status"] != "succeeded" else -0.003

    skew = [0.0]
    for start in range(0, CANCELS, 10):
        in_threads([lambda number=number: one(number) for number in range(start, start + 10)])  # type: ignore[misc]
    ends = Counter[str]()
    for job_id, (status, said) in answers.items():
        job = site.fleet.wait(job_id)
        if (status, said) == (200, "succeeded"):
            assert job.status is JobStatus.SUCCEEDED and not job.cancel_requested
        else:
            assert said in ("running", "cancelled") and status == (202 if said == "running" else 200)
            assert job.status is JobStatus.CANCELLED and job.result is None
        ends[job.status] += 1
    assert len(answers) == CANCELS and min(ends[JobStatus.SUCCEEDED], ends[JobStatus.CANCELLED]) >= 50, ends
    for row in site.fleet.rows(
        "SELECT j.id, j.status, array_agg(e.type ORDER BY e.seq) AS types FROM ai_jobs j"
        " JOIN ai_events e ON e.job_id = j.id GROUP BY j.id"
    ):
        if row["id"] in answers:
            ended = [kind for kind in row["types"] if kind in ("job.succeeded", "job.cancelled", "job.failed")]
            assert ended == [f"job.{row['status']}"] and row["types"][-1] == ended[0]
    for job_id in jobs:
        assert site.fleet.wait(job_id).status is JobStatus.SUCCEEDED


def test_a_waiting_job_is_cancelled_where_it_stands(site: Site) -> None:
    later = site.submit("text=x", run_at="2099-01-01T00:00:00Z")
    assert (site.cancel(later).status, site.get(later)["status"]) == (200, "cancelled")
    again = site.cancel(later)
    assert (again.status, again.json["status"]) == (200, "cancelled")


def test_a_job_in_backoff_is_cancelled_where_it_stands(site: Site) -> None:
    job_id = site.submit("marker=m status=503")
    wait_for(lambda: site.get(job_id)["status"] == "queued" and site.get(job_id)["attempts"] > 0, "a backoff")
    site.cancel(job_id)
    assert site.fleet.wait(job_id).status is JobStatus.CANCELLED
    calls = len(site.fleet.simulator.calls("m"))
    time.sleep(1.5)
    assert len(site.fleet.simulator.calls("m")) == calls and site.get(job_id)["status"] == "cancelled"


def test_a_cancel_is_heard_while_its_worker_drains(make_site: Callable[..., Site], fleet: Fleet) -> None:
    leaving = fleet.start(
        AIJOBS_PROCESSES=1, AIJOBS_DRAIN_SECONDS=60, AIJOBS_HEARTBEAT_SECONDS=40, AIJOBS_LEASE_SECONDS=120
    )
    site = make_site(AIJOBS_WEB_PROCESSES="1")
    job_id = site.submit("first_byte_ms=60000")
    fleet.wait_until_sent(job_id)
    leaving.terminate()
    time.sleep(0.5)
    started = time.monotonic()
    assert site.cancel(job_id).status == 202
    assert fleet.wait(job_id).status is JobStatus.CANCELLED
    assert leaving.wait(20) == 0 and time.monotonic() - started < 20


def test_a_cancel_outlives_the_worker_that_was_to_hear_of_it(make_site: Callable[..., Site], fleet: Fleet) -> None:
    dying = fleet.start(AIJOBS_PROCESSES=1)
    site = make_site(AIJOBS_WEB_PROCESSES="1")
    job_id = site.submit("marker=m first_byte_ms=60000")
    fleet.wait_until_sent(job_id)
    os.killpg(dying.pid, signal.SIGSTOP)
    assert site.cancel(job_id).status == 202
    os.killpg(dying.pid, signal.SIGKILL)
    fleet.start(AIJOBS_REAP_SECONDS=0.3)
    assert fleet.wait(job_id).status is JobStatus.CANCELLED
    assert len(fleet.simulator.calls("m")) == 1
