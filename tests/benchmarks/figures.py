"""The figures, each measured against something in the same run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg

from aijobs.store import claims
from aijobs.store.db import connect
from aijobs.store.notify import Notifier
from tests.benchmarks.rig import Rig, children, count, fill, one, pss_kib, wait_for

Figures = dict[str, Any]
_fork = multiprocessing.get_context("fork")

# The least that a queue in PostgreSQL can do: claim with SKIP LOCKED, complete by id. No fence, lease, attempt, event.
_RAW_TABLE = """
CREATE TABLE raw_jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text NOT NULL DEFAULT 'queued',
    payload jsonb NOT NULL DEFAULT '{}', result jsonb);
CREATE INDEX ON raw_jobs (id) WHERE status = 'queued';
"""
_RAW_CLAIM = """
WITH due AS MATERIALIZED (SELECT id FROM raw_jobs WHERE status = 'queued' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE raw_jobs SET status = 'running' FROM due WHERE raw_jobs.id = due.id RETURNING raw_jobs.id, payload
"""
_RAW_COMPLETE = "UPDATE raw_jobs SET status = 'succeeded', result = '{}' WHERE id = ANY(%s)"


def drain(rig: Rig, *, jobs: int, processes: int = 2, slots: int = 50) -> Figures:
    """No-op jobs through whole workers, against two bare loops with as many processes and rows to a batch.

    `of_statements` is against a psycopg loop of our own claim and accept: what threads, slots and supervision cost.
    `of_minimal` is against the least a queue in PostgreSQL can do: what fence, lease, attempt and events cost as well.
    """
    dsn = rig.fresh_database()
    fill(dsn, "noop", jobs)
    with rig.workers(dsn, AIJOBS_PROCESSES=processes, AIJOBS_THREADS=slots):
        wait_for(lambda: count(dsn, "queued") < jobs, "the first claim", pause=0.01)
        started = time.perf_counter()
        left = count(dsn, "queued") + count(dsn, "running")
        wait_for(lambda: count(dsn, "succeeded") == jobs, "the drain", pause=0.1)
        ours = left / (time.perf_counter() - started)
    fill(dsn, "noop", jobs)
    statements = _loop_rate(_statement_loop, dsn, jobs, processes, slots)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_RAW_TABLE.encode())
        connection.execute("INSERT INTO raw_jobs (payload) SELECT '{}' FROM generate_series(1, %s)", [jobs])
        connection.execute("VACUUM ANALYZE raw_jobs")
    minimal = _loop_rate(_raw_loop, dsn, jobs, processes, slots)
    return {
        "jobs_per_second": round(ours),
        "statements_per_second": round(statements),
        "minimal_per_second": round(minimal),
        "of_statements": round(ours / statements, 2),
        "of_minimal": round(ours / minimal, 2),
    }


def _loop_rate(loop: Callable[[str, int], None], dsn: str, jobs: int, processes: int, batch: int) -> float:
    workers = [_fork.Process(target=loop, args=(dsn, batch)) for _ in range(processes)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return jobs / (time.perf_counter() - started)


def _statement_loop(dsn: str, batch: int) -> None:
    with connect(dsn, application_name="bench") as connection:
        while found := claims.claim(
            connection, worker_id=f"bench-{os.getpid()}", lease_seconds=60, queues=None, kinds=["noop"], slots=batch
        ).claims:
            claims.accept(connection, [claims.Result(claim.job_id, claim.run_token, "{}") for claim in found])


def _raw_loop(dsn: str, batch: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        while claimed := connection.execute(_RAW_CLAIM, [batch]).fetchall():
            connection.execute(_RAW_COMPLETE, [[row[0] for row in claimed]])


def queue_wait(rig: Rig, *, jobs: int) -> Figures:
    """From the commit of a single job to its claim, on an idle system: what a user waits for nothing."""
    dsn = rig.fresh_database()
    notifier = Notifier(dsn, application_name="bench")
    with rig.workers(dsn, AIJOBS_PROCESSES=2, AIJOBS_THREADS=8):
        fill(dsn, "noop", 1)
        notifier.notify("default")
        wait_for(lambda: count(dsn, "succeeded") == 1, "warm workers")
        committed = []
        for number in range(jobs):
            fill_one(dsn, number)
            committed.append(time.time())  # the server is on this machine, so that it is the same clock
            notifier.notify("default")
            wait_for(lambda done=number + 2: count(dsn, "succeeded") == done, "the job", pause=0.002)  # type: ignore[misc]
            time.sleep(0.02)
    notifier.close()
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT extract(epoch FROM started_at) FROM ai_jobs WHERE idempotency_key LIKE 'one-%' ORDER BY created_at"
        ).fetchall()
    waits = sorted(float(row[0]) * 1000 - moment * 1000 for row, moment in zip(rows, committed, strict=True))
    return {
        "p50_ms": round(statistics.median(waits), 2),
        "p99_ms": round(waits[int(len(waits) * 0.99) - 1], 2),
        "jobs": jobs,
    }


def fill_one(dsn: str, number: int) -> None:
    from tests.benchmarks.rig import FILL

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FILL, {"key": f"one-{number}-", "kind": "noop", "count": 1, "payload": "{}"})


def memory(rig: Rig, *, in_flight: tuple[int, ...] = (100, 500)) -> Figures:
    """Memory of the worker processes for each job in flight, over what they take when idle."""
    figures: Figures = {}
    for jobs in in_flight:
        dsn = rig.fresh_database()
        with rig.workers(dsn, AIJOBS_PROCESSES=2, AIJOBS_THREADS=jobs // 2) as supervisor:
            fill(dsn, "noop", 4)
            wait_for(lambda dsn=dsn: count(dsn, "succeeded") == 4, "warm workers")  # type: ignore[misc]
            workers = children(supervisor.pid)
            idle = pss_kib(workers)
            fill(dsn, "sleep", jobs, '{"seconds": 4}')
            wait_for(lambda dsn=dsn, jobs=jobs: count(dsn, "running") == jobs, "all in flight")  # type: ignore[misc]
            figures[f"kib_per_job_at_{jobs}"] = round((pss_kib(workers) - idle) / jobs, 1)
            figures.setdefault("idle_kib_per_process", round(idle / len(workers)))
            wait_for(lambda dsn=dsn: count(dsn, "running") == 0, "the end")  # type: ignore[misc]
    return figures


def idle(rig: Rig, *, seconds: float) -> Figures:
    """Transactions a second that two idle worker processes cost the database, with default settings."""
    dsn = rig.fresh_database()
    name = dict(part.split("=", 1) for part in dsn.split())["dbname"]
    query = f"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{name}'"
    postgres = dsn.replace(f"dbname={name}", "dbname=postgres")
    with rig.workers(dsn, AIJOBS_PROCESSES=2):
        time.sleep(8)  # past the start: the reaper's duty is taken, connections are open
        before = one(postgres, query)
        time.sleep(seconds)
        after = one(postgres, query)
    return {"transactions_per_second": round((after - before) / seconds, 2), "seconds": seconds}


def crash(rig: Rig, *, rounds: int) -> Figures:
    """From the kill -9 of the worker that runs a job to the job's next claim, with default settings."""
    times = []
    for _ in range(rounds):
        dsn = rig.fresh_database()
        with rig.workers(dsn, AIJOBS_PROCESSES=2) as supervisor:
            fill(dsn, "sleep", 1, '{"seconds": 2}')
            wait_for(lambda dsn=dsn: count(dsn, "running") == 1, "the job runs")  # type: ignore[misc]
            owner = str(one(dsn, "SELECT worker_id FROM ai_jobs"))
            pid = next(pid for pid in children(supervisor.pid) if f"-{pid}-" in owner)
            os.kill(pid, signal.SIGKILL)
            times.append(
                wait_for(lambda dsn=dsn: one(dsn, "SELECT attempts FROM ai_jobs") == 2, "the next claim", pause=0.002)  # type: ignore[misc]
            )
    return {"seconds_median": round(statistics.median(times), 3), "seconds_max": round(max(times), 3), "rounds": rounds}
