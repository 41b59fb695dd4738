"""What a deploy does to a working fleet: migrations under traffic, and one hint for many idle processes."""

from __future__ import annotations

import threading

import pytest

from aijobs.domain.jobs import JobStatus
from aijobs.store import migrate as migrations
from aijobs.store.migrate import Migration, migrate, required_level
from tests.workers.fleet import Fleet, wait_for


def test_a_migration_is_applied_while_jobs_are_created_and_run(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.start()
    stop = threading.Event()
    made = []

    def create() -> None:
        while not stop.is_set():
            made.append(fleet.submit(kind="noop"))

    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(made) > 50, "traffic")
    text = "ALTER TABLE ai_jobs ADD COLUMN added integer; CREATE INDEX ON ai_jobs (added) WHERE added IS NOT NULL;"
    known = migrations.migrations()
    added = Migration(required_level() + 1, f"{required_level() + 1:04d}_add_column", text)
    monkeypatch.setattr(migrations, "migrations", lambda: [*known, added])
    assert migrate(fleet.dsn) == [added.name]
    already = len(made)
    wait_for(lambda: len(made) > already + 50, "traffic afterwards")
    stop.set()
    for thread in threads:
        thread.join()
    assert {fleet.wait(job_id).status for job_id in made} == {JobStatus.SUCCEEDED}


def test_a_hint_does_not_make_the_whole_fleet_look_each_time(fleet: Fleet) -> None:
    """Eight idle processes hear each hint; those that keep finding nothing answer later and later."""
    fleet.start(AIJOBS_PROCESSES=8, AIJOBS_THREADS=4, AIJOBS_POLL_SECONDS=30)
    statistics = "SELECT xact_commit AS n FROM pg_stat_database WHERE datname = current_database()"
    fleet.wait(fleet.submit(kind="noop"))
    before = fleet.rows(statistics)[0]["n"]
    jobs = [fleet.submit(kind="noop") for _ in range(300)]
    for job_id in jobs:
        fleet.wait(job_id)
    made = fleet.rows(statistics)[0]["n"] - before
    # A create, a hint and an accept each, and our own look; what is left are claims.
    claims = made / 300 - 4
    assert claims < 3, f"{claims:.1f} claims to a job"
