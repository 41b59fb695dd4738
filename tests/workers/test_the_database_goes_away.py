"""A database that restarts, or a network that goes silent: workers are patient, and nothing accepted is lost."""

from __future__ import annotations

import os
import signal
import time

import psycopg

from aijobs.domain.jobs import JobStatus
from aijobs.embedded import EmbeddedPostgres
from tests.relay import Relay
from tests.workers.fleet import Fleet, children, wait_for


def test_answers_that_come_while_the_database_is_down_are_kept_and_written(
    fleet: Fleet, postgres: EmbeddedPostgres
) -> None:
    fleet.start(AIJOBS_LEASE_SECONDS=30, AIJOBS_HEARTBEAT_SECONDS=5)
    jobs = [fleet.submit("[[sim: marker=m first_byte_ms=1500]]") for _ in range(12)]
    for job_id in jobs:
        fleet.wait_until_sent(job_id)
    postgres.stop_server("immediate")
    wait_for(lambda: _completed(fleet) == 12, "the provider's answers")
    postgres.start_server()
    assert {fleet.wait(job_id).status for job_id in jobs} == {JobStatus.SUCCEEDED}
    assert {fleet.job(job_id).attempts for job_id in jobs} == {1}
    assert fleet.simulator.paid("m") == 12


def _completed(fleet: Fleet) -> int:
    return sum(bool(call["completed"]) for call in fleet.simulator.calls("m"))


def test_workers_start_without_a_database_and_begin_when_it_comes(fleet: Fleet, postgres: EmbeddedPostgres) -> None:
    waiting = fleet.submit("hello")
    postgres.stop_server("fast")
    try:
        supervisor = fleet.start_without_waiting()
        wait_for(lambda: len(children(supervisor.pid)) == 2, "two workers")
        time.sleep(1)  # long enough to fail a few times
        assert supervisor.poll() is None
    finally:
        postgres.start_server()
    assert fleet.wait(waiting).status is JobStatus.SUCCEEDED


def test_a_restart_while_many_leases_are_expired_loses_none(fleet: Fleet, postgres: EmbeddedPostgres) -> None:
    dead = fleet.start(AIJOBS_PROCESSES=1, AIJOBS_THREADS=30)
    jobs = [fleet.submit("[[sim: first_byte_ms=700]]") for _ in range(30)]
    wait_for(lambda: fleet.rows("SELECT count(*) AS n FROM ai_jobs WHERE status = 'running'")[0]["n"] == 30, "thirty")
    os.killpg(dead.pid, signal.SIGKILL)
    fleet.rows("UPDATE ai_jobs SET lease_until = now() - interval '1 second', max_unknown_retries = 5 RETURNING id")
    fleet.start(AIJOBS_PROCESSES=2, AIJOBS_THREADS=15)
    postgres.stop_server("immediate")
    postgres.start_server()
    assert {fleet.wait(job_id, seconds=40).status for job_id in jobs} == {JobStatus.SUCCEEDED}


def test_a_claim_connection_that_goes_silent_delays_a_job_by_a_poll_at_most_and_is_replaced(fleet: Fleet) -> None:
    with Relay(fleet.dsn) as relay:
        fleet.start(AIJOBS_DATABASE_URL=relay.dsn, AIJOBS_POLL_SECONDS=2)
        assert relay.swallow("aijobs claim") == 2
        jobs = [fleet.submit("hello") for _ in range(5)]
        for job_id in jobs:
            assert fleet.wait(job_id).status is JobStatus.SUCCEEDED
        (row,) = fleet.rows("SELECT max(extract(epoch FROM started_at - created_at)) AS longest FROM ai_jobs")
        assert row["longest"] < 2 + 2  # the poll, and the second after which its reply is overdue; one more for noise
        wait_for(lambda: fleet.rows(_LISTENERS)[0]["n"] >= 2, "two new listeners")
        started = time.monotonic()
        assert fleet.wait(fleet.submit("again")).status is JobStatus.SUCCEEDED
        assert time.monotonic() - started < 1.5


_LISTENERS = (
    "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name LIKE 'aijobs claim %' AND state = 'idle'"
)


def test_a_stopped_backend_is_noticed_like_a_silent_network(fleet: Fleet) -> None:
    fleet.start(AIJOBS_POLL_SECONDS=2)
    stopped = [
        row["pid"]
        for row in fleet.rows("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'aijobs claim %'")
    ]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        job = fleet.wait(fleet.submit("hello"), seconds=10)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert job.status is JobStatus.SUCCEEDED


def test_cut_connections_are_replaced_without_a_restart(fleet: Fleet) -> None:
    with Relay(fleet.dsn) as relay:
        fleet.start(AIJOBS_DATABASE_URL=relay.dsn)
        for _ in range(3):
            jobs = [fleet.submit("[[sim: first_byte_ms=300]]") for _ in range(4)]
            for job_id in jobs:
                fleet.wait_until_sent(job_id)
            relay.cut()
            assert {fleet.wait(job_id).status for job_id in jobs} == {JobStatus.SUCCEEDED}
        assert fleet.rows("SELECT max(attempts) AS n FROM ai_jobs") == [{"n": 1}]


def test_a_database_that_refuses_writes_is_waited_for(fleet: Fleet) -> None:
    """As after a failover, while connections still lead to the demoted server."""
    fleet.start()
    database = fleet.rows("SELECT current_database() AS name")[0]["name"]
    fleet.rows(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    fleet.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'aijobs %'")
    time.sleep(1.5)
    fleet.rows(f"BEGIN READ WRITE; ALTER DATABASE {database} RESET default_transaction_read_only; COMMIT")
    fleet.db.close()  # our own connections still refuse writes
    assert fleet.wait(fleet.submit("hello"), seconds=15).status is JobStatus.SUCCEEDED


def test_a_row_that_somebody_has_locked_holds_up_its_own_job_and_no_other(fleet: Fleet) -> None:
    fleet.start(AIJOBS_PROCESSES=1, AIJOBS_LEASE_SECONDS=30, AIJOBS_HEARTBEAT_SECONDS=5)
    locked = fleet.submit("[[sim: first_byte_ms=1000]]")
    others = [fleet.submit("[[sim: first_byte_ms=1000]]") for _ in range(6)]
    for job_id in (locked, *others):
        fleet.wait_until_sent(job_id)
    with psycopg.connect(fleet.dsn) as session:
        session.execute("SELECT FROM ai_jobs WHERE id = %s FOR UPDATE", [locked])
        for job_id in others:
            assert fleet.wait(job_id, seconds=10).status is JobStatus.SUCCEEDED
        assert fleet.job(locked).status is JobStatus.RUNNING
    assert fleet.wait(locked, seconds=10).status is JobStatus.SUCCEEDED
    assert fleet.job(locked).attempts == 1


def test_an_outage_longer_than_the_lease_buys_nothing_twice(fleet: Fleet, postgres: EmbeddedPostgres) -> None:
    """Every lease has run out when the database returns; the living must get to settle before anybody reaps."""
    fleet.start(AIJOBS_HEARTBEAT_SECONDS=1, AIJOBS_REAP_SECONDS=0.3)
    jobs = [fleet.submit("[[sim: marker=m first_byte_ms=800]]") for _ in range(12)]
    for job_id in jobs:
        fleet.wait_until_sent(job_id)
    postgres.stop_server("immediate")
    time.sleep(4)  # the lease is three seconds
    postgres.start_server()
    assert {fleet.wait(job_id).status for job_id in jobs} == {JobStatus.SUCCEEDED}
    assert {fleet.job(job_id).attempts for job_id in jobs} == {1}
    assert fleet.simulator.paid("m") == 12
