"""Every statement is one file that PostgreSQL accepts, says what it is, and asks for exactly its parameters."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from aijobs.store.db import Connection, execute
from aijobs.store.queries import query, sql_root

NAMES = sorted(
    str(path.relative_to(sql_root()).with_suffix(""))
    for path in sql_root().rglob("*.sql")
    if "migrations" not in path.parts
)
# Not plannable statements; they are run instead of prepared.
UTILITY = ("CREATE ", "DO ", "LISTEN ", "SET ")


@pytest.mark.parametrize("name", NAMES)
def test_the_statement_fits_the_schema(connection: Connection, name: str) -> None:
    statement = query(name)
    body = statement.text.split("*/ ", 1)[1]
    if body.startswith(UTILITY):
        connection.execute(statement.text)
        return
    for number, parameter in enumerate(sorted(statement.parameters), 1):
        body = body.replace(f"%({parameter})s", f"${number}")
    with connection.transaction(force_rollback=True):
        connection.execute(f"PREPARE checked AS {body.replace('%%', '%')}".encode())


@pytest.mark.parametrize("name", NAMES)
def test_the_file_opens_with_what_it_does_and_what_it_locks(name: str) -> None:
    text = (sql_root() / f"{name}.sql").read_text()
    header = re.match(r"(?:--.*\n)+", text)
    assert header is not None, "no header"
    if name.startswith(("notify/", "upkeep/ping")):
        return
    assert "-- Locks: " in header[0]


def test_a_missing_or_extra_parameter_is_an_error(connection: Connection) -> None:
    with pytest.raises(TypeError, match="missing parameters"):
        execute(connection, "claims/give_up_duty", {})
    with pytest.raises(TypeError, match="unexpected"):
        execute(connection, "claims/give_up_duty", {"worker_id": "w", "other": 1})


def test_skip_locked_is_only_where_waiting_would_be_wrong() -> None:
    skipping = {name for name in NAMES if "SKIP LOCKED" in query(name).text}
    assert skipping == {
        "calls/take_strays",
        "claims/claim",
        "claims/extend",
        "claims/lock_abandoned",
        "claims/lock_expired",
        "claims/lock_unheld",
        "claims/promote",
        "jobs/expire",
        "webhooks/claim",
    }


def test_no_column_holds_a_float_or_a_time_without_its_zone(connection: Connection) -> None:
    odd = connection.execute(
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
        " AND data_type IN ('real', 'double precision', 'timestamp without time zone', 'numeric', 'money')"
    ).fetchall()
    assert odd == []


def test_every_statement_is_used() -> None:
    root = Path(__file__).parents[2]
    sources = "\n".join(path.read_text() for folder in ("aijobs", "workers") for path in (root / folder).rglob("*.py"))
    named = [name for name in NAMES if not name.startswith("invariants/")]  # those are run by the folder
    assert [name for name in named if f'"{name}"' not in sources] == []


def test_the_server_sees_which_file_a_statement_came_from(connection: Connection) -> None:
    with pytest.raises(psycopg.Error):
        connection.execute(query("upkeep/ping").text.replace("1 AS one", "no_such_column"))
    assert query("claims/claim").text.startswith("/* claims/claim.sql */")
