"""Requests to an application in this process."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

CHAT = {"kind": "chat", "payload": {"prompt": "Hello"}}
_numbers = itertools.count(1)


class Client:
    """Requests to an application in this process, with an API key."""

    def __init__(self, app: Flask, key: str) -> None:
        self.app = app
        self.key = key
        self._flask: FlaskClient = app.test_client()

    def with_key(self, key: str) -> Client:
        return Client(self.app, key)

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **given: Any
    ) -> TestResponse:
        merged = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        return self._flask.open(path, method=method, headers=merged, **given)

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, **given: Any) -> TestResponse:
        return self.request("POST", path, **given)

    def create(self, document: Any = None, *, key: str | None = None, **headers: str) -> TestResponse:
        """Create a job from a document, or from the raw bytes of one."""
        raw = document if isinstance(document, bytes) else json.dumps(CHAT if document is None else document).encode()
        named = {"Idempotency-Key": f"key-{next(_numbers)}" if key is None else key, **_with_hyphens(headers)}
        return self.request(
            "POST", "/api/ai/jobs", data=raw, headers=named, content_type=named.pop("Content-Type", "application/json")
        )

    def created(self, document: Any = None, **given: Any) -> dict[str, Any]:
        answered = self.create(document, **given)
        assert answered.status_code == 202, answered.text
        return document_of(answered)


def _with_hyphens(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def document_of(answered: TestResponse) -> dict[str, Any]:
    assert answered.content_type == "application/json", answered.text
    document: dict[str, Any] = json.loads(answered.data)
    return document


def problem_of(answered: TestResponse) -> dict[str, Any]:
    """The answer's problem, after a look at what every problem must be."""
    assert answered.content_type == "application/problem+json", answered.text
    problem: dict[str, Any] = json.loads(answered.data)
    assert problem["status"] == answered.status_code
    assert {"type", "title", "detail", "instance", "code", "retryable"} <= problem.keys()
    assert problem["request_id"] == answered.headers["X-Request-Id"]
    assert answered.headers["Cache-Control"] == "no-store"
    return problem
