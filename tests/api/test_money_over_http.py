"""Budgets and usage as a tenant sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from aijobs.store import claims, ledger
from aijobs.store.claims import Result
from aijobs.store.db import Connection, Database
from tests.api.client import Client, problem_of
from tests.api.conftest import KINDS

PRICED = {
    "chat": replace(KINDS["chat"], price_micros=20, reserve_micros=50),
    "free": replace(KINDS["report"], name="free"),
}


@pytest.fixture
def priced(make_client: Callable[..., Client]) -> Client:
    return make_client(kinds=PRICED)


def test_a_budget_admits_what_it_covers_and_no_more(
    priced: Client, db: Database, tenant: UUID, connection: Connection
) -> None:
    ledger.grant(db, tenant, 100)
    first = priced.created()
    assert first["cost"] == {"currency": "USD", "reserved_micros": 50, "charged_micros": 0}
    priced.created(key="k")
    refused = priced.create()
    assert (refused.status_code, problem_of(refused)["code"]) == (402, "insufficient_budget")
    assert problem_of(refused)["retryable"] is False
    assert priced.create(key="k").status_code == 202, "a replay costs nothing"
    assert priced.get("/api/ai/budget").json == {
        "currency": "USD",
        "budgeted": True,
        "granted_micros": 100,
        "reserved_micros": 100,
        "charged_micros": 0,
        "available_micros": 0,
    }
    priced.post(first["links"]["cancel"])
    assert priced.create().status_code == 202
    assert connection.execute("SELECT count(*) AS n FROM ai_jobs").fetchone() == {"n": 3}


def test_a_refused_key_is_not_bound(priced: Client, db: Database, tenant: UUID) -> None:
    ledger.grant(db, tenant, 10)
    assert priced.create(key="k").status_code == 402
    ledger.grant(db, tenant, 90)
    assert priced.create(key="k").status_code == 202


def test_a_kind_without_a_price_is_refused_to_a_budget(priced: Client, db: Database, tenant: UUID) -> None:
    free = {"kind": "free", "payload": {}}
    assert priced.create(free).status_code == 202
    assert priced.get("/api/ai/budget").json == {"currency": "USD", "budgeted": False}
    for job in priced.get("/api/ai/jobs").json["data"]:
        priced.post(job["links"]["cancel"])
    ledger.grant(db, tenant, 100)
    refused = priced.create(free)
    assert refused.status_code == 422
    assert problem_of(refused)["errors"][0]["pointer"] == "#/kind"


def test_an_operators_retry_that_does_not_fit_is_402(priced: Client, db: Database, tenant: UUID) -> None:
    from aijobs.store import tenants

    ledger.grant(db, tenant, 50)
    job = priced.created()
    priced.post(job["links"]["cancel"])
    priced.created()
    operator = priced.with_key(tenants.create_key(db, tenant, scopes=("operate",)))
    assert operator.post(f"{job['links']['self']}/retry").status_code == 402


def test_usage_is_counted_from_the_rows(priced: Client, connection: Connection) -> None:
    for _ in range(3):
        priced.created()
    found = claims.claim(connection, worker_id="w", lease_seconds=60, queues=None, kinds=["chat"], slots=2).claims
    claims.accept(connection, [Result(found[0].job_id, found[0].run_token, "{}")])
    (row,) = priced.get("/api/ai/usage").json["data"]
    assert row.items() >= {"group": "all", "jobs": 3, "accepted": 1, "attempts": 2, "charged_micros": 20}.items()
    assert row["cost_per_accepted_micros"] == 0 and row["first_try_share"] == 1.0
    for group, name in (("kind", "chat"), ("provider", "simulator"), ("model", "simulated"), ("user", "")):
        (row,) = priced.get(f"/api/ai/usage?group_by={group}").json["data"]
        assert (row["group"], row["jobs"]) == (name, 3)
    (row,) = priced.get("/api/ai/usage?group_by=day&from=2026-01-01").json["data"]
    assert row["jobs"] == 3
    assert priced.get("/api/ai/usage?to=2026-01-01T00:00:00Z").json["data"] == []


def test_usage_is_the_tenants_own(priced: Client, foreign_client: Client) -> None:
    priced.created()
    assert foreign_client.get("/api/ai/usage").json["data"] == []


@pytest.mark.parametrize(
    "query", ["group_by=tenant", "from=yesterday", "to=9999-01-01", "limit=3", "from=2026-01-01&from=2026-01-02"]
)
def test_a_query_that_means_nothing_is_refused(shared_client: Client, query: str) -> None:
    answered = shared_client.get(f"/api/ai/usage?{query}")
    assert (answered.status_code, problem_of(answered)["code"]) == (400, "invalid_query")
    document: Any = problem_of(shared_client.get("/api/ai/budget?x=1"))
    assert document["code"] == "invalid_query"
