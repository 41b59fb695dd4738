"""Liveness asks nothing of the database; readiness asks for it and for its schema."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aijobs.api import readiness
from aijobs.config import Settings
from aijobs.store.db import Connection
from tests.api.client import Client, problem_of

Make = Callable[..., Client]


def test_a_process_is_alive_without_a_database(make_client: Make) -> None:
    away = make_client(database_url="host=/nonexistent dbname=none")
    answered = away.app.test_client().get("/health/live")
    assert (answered.status_code, answered.json) == (200, {"status": "pass"})
    assert answered.headers["Cache-Control"] == "no-store"


def test_a_process_with_its_database_is_ready(client: Client) -> None:
    answered = client.app.test_client().get("/health/ready")
    assert (answered.status_code, answered.json) == (
        200,
        {"status": "pass", "checks": {"database": "pass", "schema": "pass"}},
    )


def test_a_process_without_its_database_is_not(make_client: Make) -> None:
    answered = make_client(database_url="host=/nonexistent dbname=none").get("/health/ready")
    assert problem_of(answered)["code"] == "unavailable"
    assert answered.headers["Retry-After"]
    assert "nonexistent" not in answered.text


def test_a_schema_that_was_not_migrated_is_not(make_client: Make, empty_database_url: str) -> None:
    assert make_client(database_url=empty_database_url).get("/health/ready").status_code == 503


def test_readiness_returns_with_the_schema(
    make_client: Make, settings: Settings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "REMEMBER_SECONDS", 0.0)
    client = make_client()
    connection.execute("ALTER TABLE ai_schema_migrations RENAME TO elsewhere")
    assert client.get("/health/ready").status_code == 503
    connection.execute("ALTER TABLE elsewhere RENAME TO ai_schema_migrations")
    assert client.get("/health/ready").status_code == 200


def test_a_flood_of_probes_is_one_look(client: Client, connection: Connection) -> None:
    client.get("/health/ready")
    connection.execute("ALTER TABLE ai_schema_migrations RENAME TO elsewhere")
    assert client.get("/health/ready").status_code == 200
