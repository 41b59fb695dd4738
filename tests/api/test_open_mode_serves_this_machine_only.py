"""Without keys, only requests from this machine and to it are answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.client import Client, problem_of


@pytest.fixture
def visitor(make_client: Callable[..., Client]) -> Client:
    return make_client(auth="open")


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_HOST": "localhost:8000"},
        {"HTTP_HOST": "LOCALHOST"},
        {"HTTP_HOST": "127.0.0.1:80"},
        {"HTTP_HOST": "[::1]:8000", "REMOTE_ADDR": "::1"},
        {"REMOTE_ADDR": "127.9.9.9"},
        {"REMOTE_ADDR": "::ffff:127.0.0.1"},
    ],
)
def test_a_request_from_this_machine_needs_no_key(visitor: Client, environ: dict[str, Any]) -> None:
    answered = visitor.app.test_client().get("/api/ai/jobs", environ_overrides=environ)
    assert (answered.status_code, answered.json) == (200, {"data": [], "next_cursor": None})


@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_HOST": "evil.example"},
        {"HTTP_HOST": "localhost.evil.example"},
        {"HTTP_HOST": "127.0.0.1.nip.io"},
        {"HTTP_HOST": "localhost:80:80"},
        {"HTTP_HOST": "10.0.0.1"},
        {"HTTP_HOST": ""},
        {"REMOTE_ADDR": "10.0.0.1"},
        {"REMOTE_ADDR": "::ffff:10.0.0.1"},
        {"REMOTE_ADDR": ""},
        {"HTTP_FORWARDED": "for=127.0.0.1"},
        {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"HTTP_X_FORWARDED_PROTO": "https"},
        {"HTTP_X_FORWARDED_HOST": ""},
    ],
)
def test_any_other_request_is_refused(visitor: Client, environ: dict[str, Any]) -> None:
    for path in ("/api/ai/jobs", "/health/live", "/elsewhere"):
        answered = visitor.app.test_client().get(path, environ_overrides=environ)
        assert problem_of(answered)["code"] == "forbidden"


def test_every_scope_is_held(visitor: Client) -> None:
    job = visitor.created()
    assert visitor.get(job["links"]["self"]).status_code == 200
    assert visitor.post(job["links"]["cancel"]).status_code == 200


def test_with_keys_a_proxy_is_welcome(client: Client) -> None:
    headers = {"X-Forwarded-For": "10.0.0.1", "Host": "api.example"}
    assert client.request("GET", "/api/ai/jobs", headers=headers).status_code == 200
