"""The database's clock decides, and no session's time zone or style can change what a time says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import UUID

from aijobs.store import jobs
from aijobs.store.db import Connection, Database, connect
from aijobs.store.queries import query
from tests.store.make import queued
from tests.store.test_sql_files import NAMES


def test_times_are_utc_whatever_the_role_and_the_database_say(
    db: Database, tenant: UUID, connection: Connection, database_url: str
) -> None:
    (name,) = (row["name"] for row in connection.execute("SELECT current_database() AS name").fetchall())
    for setting in ("timezone = 'America/St_Johns'", "datestyle = 'German, DMY'"):
        connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    made = queued(db, tenant, run_at="2026-03-29T02:30:00+01:00").id
    odd = Database(database_url, application_name="odd", max_size=1)
    with connect(database_url, application_name="odd") as session:
        assert session.execute("SHOW timezone").fetchone() == {"TimeZone": "America/St_Johns"}
    job = jobs.get(odd, tenant, made)
    odd.close()
    assert job is not None
    assert job.run_at == "2026-03-29T01:30:00.000000Z"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", job.created_at)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(job.created_at)).total_seconds()) < 60


def test_no_statement_takes_a_time_from_a_process_but_those_a_client_asked_for() -> None:
    """Durations cross the border, moments do not: a host whose clock is wrong can neither steal nor delay a job."""
    taken = {name: re.findall(r"%\((\w+)\)s::timestamptz", query(name).text) for name in NAMES}
    assert {word for words in taken.values() for word in words} == {"run_at", "expires_at"}
    assert {name for name, words in taken.items() if words} == {"jobs/create"}
