"""One key makes one job, whatever races."""

from __future__ import annotations

import threading
from uuid import UUID, uuid4

import pytest

from aijobs.errors import Contention
from aijobs.store import jobs
from aijobs.store.db import Connection, Database
from tests.store.make import new_job, queued


def test_the_same_request_gets_the_same_job_and_another_request_a_conflict(db: Database, tenant: UUID) -> None:
    first = jobs.create(db, new_job(tenant, idempotency_key="k"))
    again = jobs.create(db, new_job(tenant, idempotency_key="k"))
    other = jobs.create(db, new_job(tenant, idempotency_key="k", request_hash=b"\x01" + b"o" * 32))
    assert [first.outcome, again.outcome, other.outcome] == ["created", "replayed", "conflict"]
    assert first.job.id == again.job.id == other.job.id


def test_another_tenant_may_use_the_same_key(db: Database, tenant: UUID, other_tenant: UUID) -> None:
    first = jobs.create(db, new_job(tenant, idempotency_key="k"))
    second = jobs.create(db, new_job(other_tenant, idempotency_key="k"))
    assert second.outcome == "created"
    assert first.job.id != second.job.id


def test_fifty_simultaneous_creates_of_one_key_make_one_job(db: Database, tenant: UUID, connection: Connection) -> None:
    start = threading.Barrier(50)
    answers: list[jobs.Created] = []

    def create() -> None:
        start.wait()
        answers.append(jobs.create(db, new_job(tenant, idempotency_key="k")))

    threads = [threading.Thread(target=create) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 50
    assert len({answer.job.id for answer in answers}) == 1
    assert [answer.outcome for answer in answers].count(jobs.CreateOutcome.CREATED) == 1
    counted = connection.execute(
        "SELECT count(DISTINCT j.id) AS jobs, count(*) AS events FROM ai_jobs j JOIN ai_events e ON e.job_id = j.id"
    ).fetchone()
    assert counted == {"jobs": 1, "events": 1}


def test_a_create_whose_key_is_held_by_an_open_transaction_gives_up_in_time(
    db: Database, tenant: UUID, connection: Connection
) -> None:
    job = queued(db, tenant, idempotency_key="other")
    with connection.transaction(force_rollback=True):
        connection.execute("UPDATE ai_jobs SET idempotency_key = 'k' WHERE id = %s", [job.id])
        with pytest.raises(Contention):
            jobs.create(db, new_job(tenant, idempotency_key="k"))
    assert jobs.create(db, new_job(tenant, idempotency_key="k")).outcome == "created"


def test_an_unknown_tenant_gets_nothing(db: Database, connection: Connection) -> None:
    with pytest.raises(LookupError):
        jobs.create(db, new_job(uuid4()))
    assert connection.execute("SELECT count(*) AS n FROM ai_jobs").fetchone() == {"n": 0}


def test_a_replay_forces_a_logged_commit(db: Database, tenant: UUID, connection: Connection) -> None:
    """A reply that only reads would not wait for the synchronous standby."""
    queued(db, tenant, idempotency_key="k")
    before = connection.execute("SELECT pg_current_wal_insert_lsn() AS lsn").fetchone()
    assert before is not None
    assert jobs.find_by_key(db, tenant, "k") is not None
    grown = connection.execute(
        "SELECT pg_current_wal_insert_lsn() > %s::pg_lsn AS grown", [str(before["lsn"])]
    ).fetchone()
    assert grown == {"grown": True}
