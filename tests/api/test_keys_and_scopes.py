"""Without a valid key the API tells nothing; a key does what its scopes say and no more."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from aijobs.api import auth, service_of
from aijobs.store import tenants
from aijobs.store.db import Connection, Database
from tests.api.client import CHAT, Client, problem_of


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YWlqOmFpag==",
        "Bearer aij_aaaaaaaaaaaa_" + "x" * 43,
        "Bearer not-a-key",
        "Bearer a b",
        "Bearer caf\u00e9",
        "Bearer " + "x" * 5000,
        "aij_aaaaaaaaaaaa_x",
    ],
)
def test_a_bad_key_is_refused_everywhere(shared_client: Client, header: str) -> None:
    for method, path in [("GET", "/api/ai/jobs"), ("POST", "/api/ai/jobs"), ("GET", "/api/nothing"), ("PUT", "/api")]:
        answered = shared_client.request(method, path, headers={"Authorization": header})
        problem = problem_of(answered)
        assert (problem["status"], problem["code"]) == (401, "unauthenticated")
        assert answered.headers["WWW-Authenticate"].startswith('Bearer realm="aijobs"')


def test_a_missing_key_is_refused(shared_client: Client) -> None:
    answered = shared_client.app.test_client().get("/api/ai/jobs")
    assert problem_of(answered)["code"] == "unauthenticated"
    assert answered.headers["WWW-Authenticate"] == 'Bearer realm="aijobs"'


def test_the_schemes_name_may_be_written_in_any_case(shared_client: Client) -> None:
    assert shared_client.get("/api/ai/jobs", Authorization=f"bEARER  {shared_client.key}").status_code == 200


def test_a_key_with_the_right_prefix_and_another_secret_is_refused(client: Client) -> None:
    forged = client.key[:-1] + ("A" if client.key[-1] != "A" else "B")
    assert client.with_key(forged).get("/api/ai/jobs").status_code == 401
    assert client.get("/api/ai/jobs").status_code == 200
    assert client.with_key(forged).get("/api/ai/jobs").status_code == 401


def test_every_address_wants_a_scope(client: Client, db: Database, tenant: UUID) -> None:
    """Whoever adds an address decides who may use it, or this fails."""
    operator = client.with_key(tenants.create_key(db, tenant, scopes=["operate"]))
    operators_alone = {"jobs_resolve", "jobs_retry"}
    rules = [rule for rule in client.app.url_map.iter_rules() if rule.rule.startswith("/api/")]
    assert rules
    for rule in rules:
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            path = rule.rule.replace("<job_id>", "01900000-0000-7000-8000-000000000000")
            caller = client if rule.endpoint in operators_alone else operator
            assert caller.request(method, path).status_code == 403, (method, path)


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("submit", {"create", "cancel"}), ("read", {"get", "list", "attempts"}), ("operate", set())],
)
def test_a_scope_allows_what_it_says(client: Client, db: Database, tenant: UUID, scope: str, allowed: set[str]) -> None:
    job = client.created()["links"]
    caller = client.with_key(tenants.create_key(db, tenant, scopes=[scope]))
    statuses = {
        "create": caller.create(CHAT),
        "cancel": caller.post(job["cancel"]),
        "get": caller.get(job["self"]),
        "list": caller.get("/api/ai/jobs"),
        "attempts": caller.get(job["attempts"]),
    }
    for name, answered in statuses.items():
        assert (answered.status_code != 403) is (name in allowed), name
        if name not in allowed:
            assert problem_of(answered)["code"] == "forbidden"
            assert 'error="insufficient_scope"' in answered.headers["WWW-Authenticate"]


def test_a_missing_scope_is_told_before_whether_the_job_exists(client: Client, db: Database, tenant: UUID) -> None:
    submitter = client.with_key(tenants.create_key(db, tenant, scopes=["submit"]))
    assert submitter.get("/api/ai/jobs/x").status_code == 403


def test_a_revoked_key_stops_working_within_seconds(
    client: Client, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "REMEMBER_KEY_SECONDS", 0.2)
    assert client.get("/api/ai/jobs").status_code == 200
    tenants.revoke_key(db, client.key)
    give_up_at = time.monotonic() + 5
    while client.get("/api/ai/jobs").status_code == 200:
        assert time.monotonic() < give_up_at
    assert client.get("/api/ai/jobs").status_code == 401


def test_a_known_key_is_not_looked_up_for_each_request(client: Client, connection: Connection) -> None:
    assert client.get("/api/ai/jobs").status_code == 200
    connection.execute("ALTER TABLE ai_api_keys RENAME TO elsewhere")
    assert client.get("/api/ai/jobs").status_code == 200


def test_the_remembered_keys_are_bounded(
    client: Client, db: Database, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "MOST_REMEMBERED_KEYS", 2)
    for _ in range(4):
        assert client.with_key(tenants.create_key(db, tenant)).get("/api/ai/jobs").status_code == 200
    authenticator = service_of(client.app).authenticator
    assert isinstance(authenticator, auth.KeyAuthenticator)
    assert len(authenticator._remembered) == 2
