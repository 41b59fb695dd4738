"""Another tenant's job, an unknown one and a malformed id look exactly the same."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from tests.api.client import Client, problem_of


def comparable(answered: TestResponse) -> tuple[int, list[tuple[str, str]], bytes]:
    """Everything in an answer but the request's id."""
    request_id = answered.headers["X-Request-Id"]
    headers = [(name, value) for name, value in answered.headers if name != "X-Request-Id"]
    return answered.status_code, headers, answered.data.replace(request_id.encode(), b"<id>")


@pytest.mark.parametrize(("method", "suffix"), [("GET", ""), ("POST", "/cancel"), ("GET", "/attempts"), ("HEAD", "")])
def test_what_is_not_yours_does_not_exist(client: Client, foreign_client: Client, method: str, suffix: str) -> None:
    foreign = foreign_client.created()["job_id"]
    unknown = client.request(method, f"/api/ai/jobs/{uuid4()}{suffix}")
    assert unknown.status_code == 404
    ids = [
        foreign,
        foreign.upper(),
        "x",
        "1",
        f"{{{foreign}}}",
        foreign.replace("-", ""),
        "urn:uuid:" + foreign,
        "%00",
        "a%2Fb",
        "é",
    ]
    for job_id in ids:
        answered = client.request(method, f"/api/ai/jobs/{job_id}{suffix}")
        assert comparable(answered) == comparable(unknown), job_id
    if method != "HEAD":
        assert problem_of(unknown)["code"] == "not_found"
    assert foreign_client.get(f"/api/ai/jobs/{foreign}").json["status"] == "queued"


def test_a_list_holds_only_the_callers_jobs(client: Client, foreign_client: Client) -> None:
    mine, theirs = client.created(), foreign_client.created()
    assert [job["job_id"] for job in client.get("/api/ai/jobs").json["data"]] == [mine["job_id"]]
    assert [job["job_id"] for job in foreign_client.get("/api/ai/jobs").json["data"]] == [theirs["job_id"]]


def test_open_mode_is_a_tenant_of_its_own(client: Client, make_client: Callable[..., Client]) -> None:
    job = client.created(key="k")
    visitor = make_client(auth="open")
    assert visitor.get(job["links"]["self"]).status_code == 404
    assert visitor.created(key="k")["job_id"] != job["job_id"]
