"""`aijobs migrate` may be run twice, by several at once, and again after it was killed anywhere."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from aijobs.errors import SchemaMismatch, StoreUnavailable
from aijobs.store import migrate as migrations
from aijobs.store.db import connect
from aijobs.store.migrate import check_level, migrate, required_level

CHECKOUT = Path(__file__).parents[2]
ALL = [migration.name for migration in migrations.migrations()]

# Imports first, so that what is killed is the migration and not Python's start.
MIGRATOR = """
import sys
from aijobs.store.migrate import migrate
print("ready", flush=True)
sys.stdin.readline()
migrate(sys.argv[1])
"""


def start_migrator(dsn: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", MIGRATOR, dsn], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def tell_to_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def schema(dsn: str) -> list[tuple[object, ...]]:
    """All columns, constraints and indexes."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT 'column', table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'public'"
            " UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)"
            " FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
            " UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
            " ORDER BY 1, 2, 3, 4"
        ).fetchall()


def test_the_second_time_there_is_nothing_to_do(empty_database_url: str) -> None:
    assert migrate(empty_database_url) == ALL
    before = schema(empty_database_url)
    assert migrate(empty_database_url) == []
    assert schema(empty_database_url) == before


def test_of_several_at_once_each_migration_is_applied_by_one(empty_database_url: str) -> None:
    together = threading.Barrier(4)
    applied: list[str] = []

    def run() -> None:
        together.wait()
        applied.extend(migrate(empty_database_url))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == ALL


@pytest.mark.parametrize("milliseconds", [0, 5, 10, 15, 20, 30, 45, 60, 90, 120])
def test_killed_at_any_moment_it_can_be_run_again(
    empty_database_url: str, database_url: str, milliseconds: int
) -> None:
    with start_migrator(empty_database_url) as process:
        tell_to_go(process)
        time.sleep(milliseconds / 1000)  # the moment of the kill; no fact is waited for
        process.kill()
    migrate(empty_database_url)
    assert schema(empty_database_url) == schema(database_url)


def test_killed_in_the_middle_of_a_migration_it_leaves_nothing_half_done(
    empty_database_url: str, database_url: str
) -> None:
    with psycopg.connect(empty_database_url) as blocker, psycopg.connect(empty_database_url, autocommit=True) as look:
        blocker.execute("CREATE TABLE ai_events_default ()")
        with start_migrator(empty_database_url) as process:
            tell_to_go(process)
            wait_until_somebody_waits_for_a_lock(look)
            process.kill()
        blocker.rollback()
        # The dead migrator's session may still hold the migrators' lock for a moment: that is waited for, not an error.
        migrate(empty_database_url)
    assert schema(empty_database_url) == schema(database_url)


def test_a_lock_that_is_not_to_be_had_is_tried_for_again(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(migrations.time, "sleep", lambda seconds: None)
    said: list[str] = []
    with psycopg.connect(empty_database_url) as blocker:
        blocker.execute("CREATE TABLE ai_events_default ()")

        def say(line: str) -> None:
            said.append(line)
            if "trying again" in line:
                blocker.rollback()

        assert migrate(empty_database_url, say=say) == ALL
    assert sum("trying again" in line for line in said) == 1


def test_a_migration_that_was_changed_after_it_was_applied_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE ai_schema_migrations SET checksum = 'another' WHERE number = 1")
    with pytest.raises(SchemaMismatch, match="0001_create_jobs was changed"):
        migrate(database_url)


def test_code_refuses_a_database_of_an_older_level_and_says_what_to_do(
    empty_database_url: str, database_url: str
) -> None:
    needs = pytest.raises(SchemaMismatch, match=r"level 0.*run `aijobs migrate`")
    with connect(empty_database_url, application_name="test") as connection, needs:
        check_level(connection)
    with connect(database_url, application_name="test") as connection:
        check_level(connection)
        connection.execute("DELETE FROM ai_schema_migrations WHERE number = %s", [required_level()])
        with pytest.raises(SchemaMismatch, match="run `aijobs migrate`"):
            check_level(connection)


def test_code_works_with_a_database_of_a_newer_level(database_url: str) -> None:
    with connect(database_url, application_name="test") as connection:
        connection.execute("INSERT INTO ai_schema_migrations VALUES (9999, '9999_of_the_future', 'x')")
        check_level(connection)
    assert migrate(database_url) == []


def test_events_have_partitions_for_the_weeks_ahead(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'ai_events'::regclass").fetchone()
    assert row == (10,), "this week, the eight ahead, and the default one"


def test_a_database_that_is_not_there_is_told_as_such() -> None:
    with pytest.raises(StoreUnavailable):
        migrate("host=/nowhere dbname=none")


def wait_until_somebody_waits_for_a_lock(look: psycopg.Connection) -> None:
    give_up_at = time.monotonic() + 10
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while look.execute(waiting).fetchone() is None:
        assert time.monotonic() < give_up_at, "nobody waits for a lock"
        time.sleep(0.005)
