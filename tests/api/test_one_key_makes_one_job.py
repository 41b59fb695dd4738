"""Sending a request again gives the same job; sending another request with its key gives a conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from aijobs.config_file import KindSettings
from aijobs.store import tenants
from aijobs.store.db import Connection, Database
from tests.api.client import CHAT, Client, problem_of
from tests.api.conftest import KINDS

Make = Callable[..., Client]


def test_the_same_request_again_is_the_same_job(client: Client, connection: Connection) -> None:
    first, again = client.create(key="k"), client.create(key="k")
    assert [first.status_code, again.status_code] == [202, 202]
    assert again.json == first.json
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Retry-After"] == "1"
    assert connection.execute("SELECT count(*) AS n FROM ai_jobs").fetchone() == {"n": 1}


def test_the_two_spellings_of_a_key_are_equal(client: Client) -> None:
    assert client.created(key="abc")["job_id"] == client.created(key='"abc"')["job_id"]


def test_a_replay_shows_the_job_as_it_now_stands(client: Client) -> None:
    job = client.created(key="k")
    client.post(job["links"]["cancel"])
    again = client.create(key="k")
    assert (again.status_code, again.json["status"]) == (200, "cancelled")
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Retry-After" not in again.headers


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            b'{"kind":"report","payload":{"a":1,"b":[1,2]}}',
            b' {"payload" : {"b":[1.0,2e0], "a":10e-1}, "kind":"report"}',
        ),
        (b'{"kind":"report","payload":{"t":"\\u00e9"}}', '{"kind":"report","payload":{"t":"é"}}'.encode()),
        (b'{"kind":"report","payload":{"n":-0.0}}', b'{"kind":"report","payload":{"n":0}}'),
    ],
)
def test_spelling_makes_no_other_request(client: Client, first: bytes, second: bytes) -> None:
    job = client.created(first, key="k")
    again = client.create(second, key="k")
    assert (again.status_code, again.json["job_id"]) == (202, job["job_id"])


@pytest.mark.parametrize(
    "second",
    [
        {"kind": "report", "payload": {"a": True, "b": [1, 2]}},
        {"kind": "report", "payload": {"a": "1", "b": [1, 2]}},
        {"kind": "report", "payload": {"a": 1, "b": [2, 1]}},
        {"kind": "report", "payload": {"a": 1, "b": [1, 2], "c": None}},
        {"kind": "report", "payload": {"a": 1, "b": [1, 2]}, "priority": 0},
        {"kind": "report", "payload": {"a": 1, "b": [1, 2]}, "user_id": None},
        {"kind": "chat", "payload": {"prompt": "x"}},
        {"nonsense": True},
        [],
    ],
)
def test_another_request_with_the_key_conflicts(client: Client, connection: Connection, second: Any) -> None:
    client.created({"kind": "report", "payload": {"a": 1, "b": [1, 2]}}, key="k")
    problem = problem_of(client.create(second, key="k"))
    assert (problem["status"], problem["code"], problem["retryable"]) == (409, "idempotency_key_reused", False)
    assert connection.execute("SELECT count(*) AS n FROM ai_jobs").fetchone() == {"n": 1}


def test_a_replay_wins_over_a_schema_that_has_become_stricter(make_client: Make) -> None:
    job = make_client().created({**CHAT, "max_attempts": 5}, key="k")
    stricter = make_client(kinds={"chat": KindSettings("chat", handler="a:b", max_attempts=1)})
    again = stricter.create({**CHAT, "max_attempts": 5}, key="k")
    assert (again.status_code, again.json["job_id"]) == (202, job["job_id"])
    without_kinds = make_client(kinds={})
    assert without_kinds.create({**CHAT, "max_attempts": 5}, key="k").status_code == 202
    assert without_kinds.create(CHAT, key="k").status_code == 409
    assert without_kinds.create(CHAT, key="new").status_code == 422


@pytest.mark.usefixtures("impatient")
def test_only_created_jobs_bind_a_key(client: Client, make_client: Make) -> None:
    assert client.create(b"{", key="k").status_code == 400
    assert client.create({**CHAT, "priority": "high"}, key="k").status_code == 422
    assert client.create(CHAT, key="k", Content_Type="text/plain").status_code == 415
    assert client.create({**CHAT, "user_id": "x" * 200_000}, key="k").status_code == 413
    assert client.with_key("aij_unknown").create(CHAT, key="k").status_code == 401
    away = make_client(database_url="host=/nonexistent dbname=none")
    assert away.create(CHAT, key="k").status_code == 503
    assert client.create(CHAT, key="k").status_code == 202


def test_a_key_is_the_tenants_and_not_the_api_keys(
    client: Client, foreign_client: Client, db: Database, tenant: UUID
) -> None:
    job = client.created(key="k")
    assert foreign_client.created(key="k")["job_id"] != job["job_id"]
    rotated = client.with_key(tenants.create_key(db, tenant))
    assert rotated.created(key="k")["job_id"] == job["job_id"]


@pytest.mark.parametrize("key", ["", " ", '""', "a,b", '"a","b"', '"a', "k" * 256, "caf\u00e9", "a b", "a\tb"])
def test_a_malformed_key_is_refused_before_the_body_is_looked_at(shared_client: Client, key: str) -> None:
    problem = problem_of(shared_client.create(b"not json", key=key))
    assert (problem["status"], problem["code"]) == (400, "idempotency_key_invalid")


def test_a_missing_key_is_refused(shared_client: Client) -> None:
    problem = problem_of(shared_client.post("/api/ai/jobs", json=CHAT))
    assert (problem["status"], problem["code"]) == (400, "idempotency_key_missing")


def test_a_job_of_a_removed_kind_is_still_replayed(make_client: Make) -> None:
    job = make_client().created(key="k")
    again = make_client(kinds={"report": KINDS["report"]}).create(key="k")
    assert again.json["job_id"] == job["job_id"]


def test_a_key_that_is_held_by_an_open_transaction_is_answered_unavailable(
    client: Client, db: Database, connection: Connection
) -> None:
    """Past the lock wait; the client sends the same again."""
    job = client.created(key="other")
    with connection.transaction(force_rollback=True):
        connection.execute("UPDATE ai_jobs SET idempotency_key = 'k' WHERE id = %s", [job["job_id"]])
        answered = client.create(key="k")
        problem = problem_of(answered)
        assert (problem["status"], problem["code"], problem["retryable"]) == (503, "unavailable", True)
        assert answered.headers["Retry-After"] == "1"
    assert client.create(key="k").status_code == 202
