"""An operator resolves held jobs and has ended ones tried again; nobody else may."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from aijobs.domain.jobs import JobStatus
from aijobs.store import tenants
from aijobs.store.db import Connection, Database
from tests.api.client import Client, problem_of
from tests.store.make import in_state, insert_answer


@pytest.fixture
def operator(client: Client, db: Database, tenant: UUID) -> Client:
    return client.with_key(tenants.create_key(db, tenant, scopes=("operate", "read")))


Held = Callable[..., str]


@pytest.fixture
def held(db: Database, connection: Connection, tenant: UUID) -> Held:
    def make(**given: str) -> str:
        job_id = in_state(db, connection, tenant, JobStatus.HELD, **given)
        connection.execute("UPDATE ai_jobs SET kind = 'chat'")
        return f"/api/ai/jobs/{job_id}"

    return make


@pytest.mark.parametrize(("action", "status"), [("retry", "queued"), ("fail", "failed"), ("cancel", "cancelled")])
def test_a_held_job_is_resolved(operator: Client, held: Held, action: str, status: str) -> None:
    job = held()
    answered = operator.post(f"{job}/resolve", json={"action": action})
    assert (answered.status_code, answered.json["status"]) == (200, status)
    again = operator.post(f"{job}/resolve", json={"action": action})
    assert (again.status_code, problem_of(again)["code"]) == (409, "wrong_status")


def test_a_stored_answer_is_accepted_as_the_result(operator: Client, held: Held, connection: Connection) -> None:
    job = held()
    refused = operator.post(f"{job}/resolve", json={"action": "accept"})
    assert (refused.status_code, problem_of(refused)["code"]) == (409, "no_stored_result")
    kept = '{"text": "kept", "finish_reason": "stop", "model": "m"}'
    insert_answer(connection, UUID(job[-36:]), offered=True, result=kept)
    answered = operator.post(f"{job}/resolve", json={"action": "accept"})
    assert (answered.status_code, answered.json["status"]) == (200, "succeeded")
    assert answered.json["result"]["text"] == "kept" and answered.json["error"] is None


def test_what_only_a_handler_can_make_is_not_accepted(operator: Client, held: Held, connection: Connection) -> None:
    job = held()
    connection.execute("UPDATE ai_jobs SET kind = 'report'")
    insert_answer(connection, UUID(job[-36:]), offered=True)
    refused = operator.post(f"{job}/resolve", json={"action": "accept"})
    assert problem_of(refused)["code"] == "no_stored_result"


@pytest.mark.parametrize("body", [{}, {"action": "explode"}, {"action": "retry", "more": 1}, [], {"action": None}])
def test_a_body_that_means_nothing_changes_nothing(operator: Client, held: Held, body: object) -> None:
    job = held()
    answered = operator.post(f"{job}/resolve", json=body)
    assert (answered.status_code, problem_of(answered)["code"]) == (422, "validation_error")
    assert operator.get(job).json["status"] == "held"


@pytest.mark.parametrize(
    ("status", "expected"),
    [("failed", 200), ("cancelled", 200), ("succeeded", 409), ("queued", 409), ("running", 409), ("held", 409)],
)
def test_an_ended_job_is_tried_again(
    operator: Client, db: Database, connection: Connection, tenant: UUID, status: str, expected: int
) -> None:
    job_id = in_state(db, connection, tenant, JobStatus(status))
    answered = operator.post(f"/api/ai/jobs/{job_id}/retry")
    assert answered.status_code == expected
    if expected == 200:
        assert answered.json["status"] == "queued" and answered.json["cancel_requested"] is False
    else:
        assert problem_of(answered)["code"] == "wrong_status"


@pytest.mark.parametrize("verb", ["retry", "resolve"])
def test_only_an_operator_of_the_tenant_may(
    client: Client, foreign_client: Client, db: Database, other_tenant: UUID, held: Held, verb: str
) -> None:
    job = held()
    assert client.post(f"{job}/{verb}", json={"action": "retry"}).status_code == 403
    stranger = foreign_client.with_key(tenants.create_key(db, other_tenant, scopes=("operate",)))
    for path in (job, "/api/ai/jobs/not-an-id"):
        assert stranger.post(f"{path}/{verb}", json={"action": "retry"}).status_code == 404
    assert client.get(job).json["status"] == "held"


@pytest.mark.parametrize(
    ("kind", "asked", "pointer"),
    [
        ("chat", {"on_unknown": "hold"}, None),
        ("chat", {"on_unknown": "fail", "max_unknown_retries": 0}, None),
        ("chat", {"max_unknown_retries": 2}, "#/max_unknown_retries"),
        ("chat", {"on_unknown": "perhaps"}, "#/on_unknown"),
        ("report", {"on_unknown": "fail"}, None),
        ("report", {"on_unknown": "retry"}, "#/on_unknown"),
    ],
)
def test_a_job_may_ask_for_less_risk_than_its_kind_and_not_for_more(
    client: Client, connection: Connection, kind: str, asked: dict[str, object], pointer: str | None
) -> None:
    answered = client.create({"kind": kind, "payload": {"prompt": "x"}, **asked})
    if pointer is None:
        assert answered.status_code == 202
        row = connection.execute("SELECT on_unknown, max_unknown_retries FROM ai_jobs").fetchone()
        assert row is not None and row.items() >= asked.items()
    else:
        assert [error["pointer"] for error in problem_of(answered)["errors"]] == [pointer]
