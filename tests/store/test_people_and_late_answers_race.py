"""Operators, clients and a late answer at the same held job at once: one of them wins, and all of it adds up."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from uuid import UUID

from aijobs.domain.jobs import JobStatus, Terms
from aijobs.errors import Contention
from aijobs.store import audit, jobs, ledger, operators, tenants
from aijobs.store.db import Connection, Database, connect
from aijobs.store.operators import NoStoredResult, WrongStatus
from tests.store.make import bring_late, claim_some, in_state

ROUNDS = 40
TERMS = Terms(tariff="fixed", price_micros=20, reserve_micros=50)


def test_whoever_wins_the_books_and_the_events_add_up(db: Database, connection: Connection, database_url: str) -> None:
    tenant = tenants.create_tenant(db, "raced")
    ledger.grant(db, tenant, 10**6)
    dice = random.Random(1)
    unexpected: list[BaseException] = []

    def act(what: Callable[[Connection, UUID], object], job_id: UUID, together: threading.Barrier) -> None:
        with connect(database_url, application_name="race") as own:
            together.wait()
            try:
                with contextlib.suppress(WrongStatus, NoStoredResult, Contention):
                    what(own, job_id)
            except BaseException as error:  # noqa: BLE001 - shown by the test's thread
                unexpected.append(error)

    acts: list[Callable[[Connection, UUID], object]] = [
        *(
            lambda own, job_id, action=action: operators.resolve(  # type: ignore[misc]
                db, tenant, job_id, action, lambda kind, stored: '{"text": "accepted"}'
            )
            for action in ("retry", "fail", "cancel", "accept")
        ),
        lambda own, job_id: bring_late(own, job_id, step=f"late{dice.random()}"),
        lambda own, job_id: bring_late(own, job_id, step=f"late{dice.random()}"),
        lambda own, job_id: jobs.request_cancel(db, tenant, job_id),
        lambda own, job_id: operators.retry(db, tenant, job_id),
        lambda own, job_id: claim_some(own),
    ]
    for _ in range(ROUNDS):
        job_id = in_state(db, connection, tenant, JobStatus.HELD, terms=TERMS)
        together = threading.Barrier(len(acts))
        threads = [threading.Thread(target=act, args=(what, job_id, together)) for what in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Whatever is left is ended, so that the next round's job is the only one in line.
        job = jobs.request_cancel(db, tenant, job_id)
        assert job is not None
        if job.status is JobStatus.RUNNING:
            connection.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE id = %s", [job_id])
            _bury(connection)
    assert unexpected == []
    assert [(name, rows) for name, rows in audit.broken(connection) if rows] == []
    balance = ledger.balance(db, tenant)
    assert balance is not None and balance.reserved_micros == 0


def _bury(connection: Connection) -> None:
    from aijobs.domain.policy import Fail
    from aijobs.store import reaping
    from aijobs.store.claims import Ending

    reaping.release_dead(connection, worker_id="w1", end=lambda dead: Ending("failed", Fail("x"), None))
