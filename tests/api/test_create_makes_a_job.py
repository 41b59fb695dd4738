"""A valid request becomes a queued job; an invalid one is told everything that is wrong with it."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import pytest

from aijobs.store import tenants
from aijobs.store.db import Connection, Database
from tests.api.client import CHAT, Client, problem_of

FULL = {
    "kind": "report",
    "payload": {"n": 1.10, "deep": [{"a": None}]},
    "queue": "slow-1.x",
    "priority": -100,
    "run_at": "2030-05-01T10:00:00.123456789+02:00",
    "expires_at": "2031-01-01T00:00:00z",
    "max_attempts": 1,
    "user_id": "u-17",
    "metadata": {"k": "v", "é": ""},
}


def test_the_answer_is_the_queued_job_and_where_to_find_it(client: Client) -> None:
    answered = client.create()
    assert answered.status_code == 202
    job = answered.json
    assert job is not None
    assert UUID(job["job_id"]).version == 7
    assert answered.headers["Location"] == f"/api/ai/jobs/{job['job_id']}" == job["links"]["self"]
    assert answered.headers["Retry-After"] == "1"
    assert answered.headers["Cache-Control"] == "no-store"
    assert "Idempotent-Replayed" not in answered.headers
    assert re.fullmatch(r"[0-9a-f]{32}", job.pop("trace_id"))
    for name in ("created_at", "run_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", job.pop(name))
    address = f"/api/ai/jobs/{job.pop('job_id')}"
    assert job == {
        "status": "queued",
        "kind": "chat",
        "queue": "default",
        "priority": 0,
        "attempts": 0,
        "max_attempts": 3,
        "cancel_requested": False,
        "result": None,
        "error": None,
        "progress": None,
        "metadata": {},
        "user_id": None,
        "started_at": None,
        "finished_at": None,
        "cost": {"currency": "USD", "reserved_micros": 0, "charged_micros": 0},
        "links": {
            "self": address,
            "cancel": f"{address}/cancel",
            "events": f"{address}/events",
            "attempts": f"{address}/attempts",
        },
    }


def test_what_was_asked_for_is_what_is_stored(client: Client, connection: Connection) -> None:
    job = client.created(FULL)
    assert job["run_at"] == "2030-05-01T08:00:00.123456Z"
    stored = connection.execute(
        "SELECT payload::text AS payload, metadata, provider, model, queue, priority, max_attempts, user_id,"
        " on_unknown, extract(epoch FROM expires_at)::bigint AS expires_at, order_at FROM ai_jobs"
    ).fetchone()
    assert stored == {
        "payload": '{"n": 1.1, "deep": [{"a": null}]}',
        "metadata": FULL["metadata"],
        "provider": None,
        "model": None,
        "queue": "slow-1.x",
        "priority": -100,
        "max_attempts": 1,
        "user_id": "u-17",
        "on_unknown": "hold",
        "expires_at": 1924992000,
        "order_at": None,
    }


def test_a_payloads_numbers_are_stored_exactly(client: Client, connection: Connection) -> None:
    number = "12345678901234567890123456789.00000000000000000000000000001"
    client.created(f'{{"kind": "report", "payload": {{"n": {number}, "m": 1e3}}}}'.encode())
    stored = connection.execute("SELECT payload::text AS text FROM ai_jobs").fetchone()
    assert stored == {"text": f'{{"m": 1000, "n": {number}}}'}


def test_a_chat_may_ask_for_a_configured_model(client: Client, connection: Connection) -> None:
    client.created({"kind": "chat", "payload": {"prompt": "Hi", "model": "other"}})
    assert connection.execute("SELECT provider, model FROM ai_jobs").fetchone() == {
        "provider": "simulator",
        "model": "other",
    }


def test_defaults_are_those_of_the_kind(client: Client) -> None:
    assert client.created({"kind": "report", "payload": {}})["max_attempts"] == 2
    assert client.created(CHAT)["max_attempts"] == 3
    assert client.created({**CHAT, "max_attempts": 10})["max_attempts"] == 10


def test_optional_values_may_be_null_where_the_job_shows_null(client: Client) -> None:
    job = client.created({**CHAT, "user_id": None, "run_at": None, "expires_at": None})
    assert job["user_id"] is None
    assert job["run_at"] == job["created_at"]


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"kind": None}, ["#/kind"]),
        ({"kind": 5}, ["#/kind"]),
        ({"kind": "nonesuch"}, ["#/kind"]),
        ({"payload": None}, ["#/payload"]),
        ({"payload": []}, ["#/payload"]),
        ({"payload": "text"}, ["#/payload"]),
        ({"payload": {}}, ["#/payload/messages"]),
        ({"payload": {"messages": [{"role": "robot", "content": "x"}]}}, ["#/payload/messages/0/role"]),
        ({"payload": {"messages": [{"role": "user"}]}}, ["#/payload/messages/0/content"]),
        ({"payload": {"prompt": "x", "max_tokens": True}}, ["#/payload/max_tokens"]),
        ({"payload": {"prompt": "x", "max_tokens": "5"}}, ["#/payload/max_tokens"]),
        ({"payload": {"prompt": "x", "temperature": 3}}, ["#/payload/temperature"]),
        ({"payload": {"prompt": 1}}, ["#/payload/prompt"]),
        ({"payload": {"prompt": "x", "a/b~c é": 1}}, ["#/payload/a~1b~0c%20%C3%A9"]),
        ({"priority": True}, ["#/priority"]),
        ({"priority": "5"}, ["#/priority"]),
        ({"priority": 1.5}, ["#/priority"]),
        ({"priority": None}, ["#/priority"]),
        ({"priority": 101}, ["#/priority"]),
        ({"priority": -101}, ["#/priority"]),
        ({"priority": 10**30}, ["#/priority"]),
        ({"queue": ""}, ["#/queue"]),
        ({"queue": "Upper"}, ["#/queue"]),
        ({"queue": "-x"}, ["#/queue"]),
        ({"queue": "q\n"}, ["#/queue"]),
        ({"queue": "q" * 64}, ["#/queue"]),
        ({"queue": 1}, ["#/queue"]),
        ({"max_attempts": 0}, ["#/max_attempts"]),
        ({"max_attempts": 11}, ["#/max_attempts"]),
        ({"max_attempts": 10**400}, ["#/max_attempts"]),
        ({"max_attempts": False}, ["#/max_attempts"]),
        ({"kind": "report", "payload": {}, "max_attempts": 3}, ["#/max_attempts"]),
        ({"user_id": ""}, ["#/user_id"]),
        ({"user_id": "u" * 256}, ["#/user_id"]),
        ({"user_id": 17}, ["#/user_id"]),
        ({"metadata": []}, ["#/metadata"]),
        ({"metadata": None}, ["#/metadata"]),
        ({"metadata": {"k": 1}}, ["#/metadata/k"]),
        ({"metadata": {"k": None}}, ["#/metadata/k"]),
        ({"metadata": {"k": "v" * 513}}, ["#/metadata/k"]),
        ({"metadata": {"": "v"}}, ["#/metadata/"]),
        ({"metadata": {"k" * 65: "v"}}, ["#/metadata/" + "k" * 65]),
        ({"metadata": {str(n): "v" for n in range(17)}}, ["#/metadata"]),
        ({"run_at": "2026-01-01T00:00:00"}, ["#/run_at"]),
        ({"run_at": "2026-01-01 00:00:00Z"}, ["#/run_at"]),
        ({"run_at": "2026-02-30T00:00:00Z"}, ["#/run_at"]),
        ({"run_at": "2026-01-01T24:00:00Z"}, ["#/run_at"]),
        ({"run_at": "2026-01-01T00:00:00+24:00"}, ["#/run_at"]),
        ({"run_at": "1999-12-31T23:59:59Z"}, ["#/run_at"]),
        ({"run_at": "2000-01-01T00:00:00+00:01"}, ["#/run_at"]),
        ({"run_at": "9999-01-01T00:00:00Z"}, ["#/run_at"]),
        ({"run_at": "9999-12-31T23:59:59-23:59"}, ["#/run_at"]),
        ({"run_at": "0001-01-01T00:00:00+23:59"}, ["#/run_at"]),
        ({"run_at": "infinity"}, ["#/run_at"]),
        ({"run_at": "\u0662026-01-01T00:00:00Z"}, ["#/run_at"]),
        ({"run_at": 1767225600}, ["#/run_at"]),
        ({"expires_at": "tomorrow"}, ["#/expires_at"]),
        ({"webhook_url": "http://example.com/"}, ["#/webhook_url"]),
        ({"webhook_url": "https://10.0.0.1/"}, ["#/webhook_url"]),
        ({"webhook_url": "https://localhost/"}, ["#/webhook_url"]),
        ({"webhook_url": "https://user@example.com/"}, ["#/webhook_url"]),
        ({"webhook_url": "https://example.com/" + "x" * 2000}, ["#/webhook_url"]),
        ({"webhook_url": 5}, ["#/webhook_url"]),
        ({"idempotency_key": "k"}, ["#/idempotency_key"]),
        ({"surplus": 1}, ["#/surplus"]),
        ({"priority": "x", "payload": {"prompt": ""}, "surplus": 1}, ["#/priority", "#/surplus", "#/payload/prompt"]),
    ],
)
def test_each_error_is_named_with_its_place(
    shared_client: Client, changes: dict[str, Any], pointers: list[str]
) -> None:
    problem = problem_of(shared_client.create({**CHAT, **changes}, key="never-bound"))
    assert (problem["status"], problem["code"], problem["retryable"]) == (422, "validation_error", False)
    assert sorted(error["pointer"] for error in problem["errors"]) == sorted(pointers)
    assert all(error["detail"] for error in problem["errors"])


@pytest.mark.parametrize("document", [[], "text", 5, None, True])
def test_a_body_that_is_no_object_is_not_valid(shared_client: Client, document: Any) -> None:
    problem = problem_of(shared_client.create(json.dumps(document).encode()))
    assert (problem["code"], problem["errors"][0]["pointer"]) == ("validation_error", "#")


def test_missing_fields_are_named(shared_client: Client) -> None:
    problem = problem_of(shared_client.create({}))
    assert sorted(error["pointer"] for error in problem["errors"]) == ["#/kind", "#/payload"]


def test_the_number_of_errors_and_their_length_are_bounded(shared_client: Client) -> None:
    problem = problem_of(shared_client.create({**CHAT, **{f"{n}" + "x" * 500: 1 for n in range(150)}}))
    assert len(problem["errors"]) == 50
    assert max(len(error["pointer"]) for error in problem["errors"]) <= 300


def test_without_configured_kinds_the_problem_says_so(make_client: Any) -> None:
    problem = problem_of(make_client(kinds={}).create())
    assert problem["code"] == "validation_error"
    assert problem["errors"] == [
        {"pointer": "#/kind", "detail": "No kinds are configured: the server has no AIJOBS_CONFIG."}
    ]


def test_limits_themselves_are_allowed(shared_client: Client) -> None:
    shared_client.created(
        {
            **CHAT,
            "queue": "q" * 63,
            "priority": 100,
            "user_id": "é" * 255,
            "metadata": {f"{n:02}" + "k" * 62: "v" * 512 for n in range(16)},
            "run_at": "2000-01-01T00:00:00Z",
            "expires_at": "9998-12-31T23:59:59.999999Z",
        }
    )


def test_an_expiry_in_the_past_is_accepted_because_clocks_differ(client: Client) -> None:
    assert client.created({**CHAT, "expires_at": "2020-01-01T00:00:00Z"})["status"] == "queued"


@pytest.mark.parametrize("query", ["?x=1", "?wait=5", "?dry_run"])
def test_a_query_string_is_refused_and_not_ignored(shared_client: Client, query: str) -> None:
    answered = shared_client.post(f"/api/ai/jobs{query}", json=CHAT, headers={"Idempotency-Key": "k"})
    assert (answered.status_code, problem_of(answered)["code"]) == (400, "invalid_query")


@pytest.mark.parametrize(
    ("traceparent", "taken"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later", True),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later", False),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", False),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", False),
        ("garbage", False),
    ],
)
def test_a_well_formed_trace_is_taken_up_and_another_is_ignored(
    shared_client: Client, traceparent: str, taken: bool
) -> None:
    job = shared_client.created(traceparent=traceparent)
    assert (job["trace_id"] == "0af7651916cd43dd8448eb211c80319c") is taken


def test_preferences_that_are_not_known_are_ignored(shared_client: Client) -> None:
    answered = shared_client.create(Prefer="handling=lenient, respond-async")
    assert answered.status_code == 202
    assert "Preference-Applied" not in answered.headers


def test_a_caller_that_may_only_submit_sees_no_result(client: Client, db: Database, tenant: UUID) -> None:
    submitter = client.with_key(tenants.create_key(db, tenant, scopes=["submit"]))
    job = submitter.created()
    assert not {"result", "progress"} & job.keys()
    assert submitter.get(job["links"]["self"]).status_code == 403
