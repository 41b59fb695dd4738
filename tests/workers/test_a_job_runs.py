"""From a queued row to an accepted result, through real processes."""

from __future__ import annotations

import time

from aijobs.domain.jobs import JobStatus
from aijobs.store import jobs
from tests.workers.fleet import Fleet, wait_for


def test_a_chat_job_gets_its_text_and_usage_from_one_paid_call(fleet: Fleet) -> None:
    fleet.start()
    job = fleet.wait(fleet.submit("[[sim: marker=m text='Hello there']]"))
    assert job.status is JobStatus.SUCCEEDED
    assert job.result["text"] == "Hello there"
    assert job.result["finish_reason"] == "stop"
    assert job.result["usage"]["output_tokens"] > 0
    assert fleet.simulator.paid("m") == 1
    (attempt,) = fleet.attempts(job.id)
    (call,) = attempt["calls"]
    assert (attempt["outcome"], attempt["accepted"]) == ("succeeded", True)
    assert (call["stage"], call["outcome"], call["http_status"]) == ("finished", "succeeded", 200)
    assert call["sent_at"] <= call["first_byte_at"] <= call["finished_at"]


def test_a_transient_error_is_repeated_and_a_permanent_one_is_not(fleet: Fleet) -> None:
    fleet.start()
    transient = fleet.submit("[[sim: marker=t status=503 times=2]]")
    permanent = fleet.submit("[[sim: marker=p status=400]]")
    job = fleet.wait(transient)
    assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 3)
    assert [attempt["outcome"] for attempt in fleet.attempts(transient)] == ["failed", "failed", "succeeded"]
    assert fleet.simulator.paid("t") == 1
    job = fleet.wait(permanent)
    assert job.error is not None
    assert (job.status, job.attempts, job.error["class"]) == (JobStatus.FAILED, 1, "permanent")


def test_refusals_cost_no_attempt(fleet: Fleet) -> None:
    fleet.start()
    job = fleet.wait(fleet.submit("[[sim: status=429 times=4]]", max_attempts=1))
    assert (job.status, job.attempts) == (JobStatus.SUCCEEDED, 5)


def test_a_backlog_drains_without_a_pause_for_the_poll(fleet: Fleet) -> None:
    """Two thousand jobs of no latency, no hint after the first: each claim must lead to the next."""
    for _ in range(2000):
        jobs.create(fleet.db, _noop(fleet))
    fleet.start(AIJOBS_POLL_SECONDS=30)
    fleet.submit(kind="noop")
    wait_for(
        lambda: fleet.rows("SELECT count(*) AS n FROM ai_jobs WHERE status = 'succeeded'")[0]["n"] == 2001,
        "the drain",
        60,
        fleet.last_lines,
    )
    (gap,) = fleet.rows(
        "SELECT max(extract(epoch FROM pause)) AS longest FROM"
        " (SELECT started_at - lag(started_at) OVER (ORDER BY started_at) AS pause FROM ai_attempts) AS pauses"
    )
    assert gap["longest"] < 10


def test_an_idle_fleet_asks_the_database_for_next_to_nothing(fleet: Fleet) -> None:
    """At most one claim per process and poll; a reap, an upkeep and a look for webhooks per interval for all."""
    fleet.start(AIJOBS_PROCESSES=4, AIJOBS_POLL_SECONDS=1)
    wait_for(lambda: not fleet.rows("SELECT name FROM ai_duties WHERE holder IS NULL"), "a reaper and a courier")
    time.sleep(1)
    statistics = "SELECT xact_commit AS n FROM pg_stat_database WHERE datname = current_database()"
    before = fleet.rows(statistics)[0]["n"]
    time.sleep(3)
    made = fleet.rows(statistics)[0]["n"] - before
    # Four polls can begin in three intervals: four claims, a reap, an upkeep and a look for deliveries in each, and our
    # own two looks.
    assert made <= 4 * (4 + 3) + 4


def test_a_job_that_is_due_later_starts_when_it_is_due_and_not_at_the_next_poll(fleet: Fleet) -> None:
    fleet.start(AIJOBS_POLL_SECONDS=20)
    (row,) = fleet.rows("SELECT to_char(now() + interval '2 seconds', 'YYYY-MM-DD\"T\"HH24:MI:SS.USOF') AS due")
    job_id = fleet.submit(run_at=row["due"] + ":00" if row["due"][-3] in "+-" else row["due"])
    job = fleet.wait(job_id, seconds=10)
    (waited,) = fleet.rows("SELECT extract(epoch FROM started_at - run_at) AS late FROM ai_jobs")
    assert job.status is JobStatus.SUCCEEDED
    assert 0 <= waited["late"] < 5


def test_a_cancelled_running_job_closes_its_providers_connection(fleet: Fleet) -> None:
    fleet.start()
    job_id = fleet.submit("[[sim: marker=c hang=headers]]")
    fleet.wait_until_sent(job_id)
    asked = jobs.request_cancel(fleet.db, fleet.tenant, job_id)
    assert asked is not None
    assert asked.status is JobStatus.RUNNING
    job = fleet.wait(job_id)
    assert (job.status, job.result) == (JobStatus.CANCELLED, None)
    wait_for(lambda: fleet.simulator.calls("c")[0]["peer_closed_at"] is not None, "the provider sees the end")


def _noop(fleet: Fleet) -> object:
    from tests.store.make import new_job

    return new_job(fleet.tenant, kind="noop")
