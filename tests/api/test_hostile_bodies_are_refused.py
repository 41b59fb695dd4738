"""Whatever a body holds, the answer is a problem and never an internal error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.api.client import Client, problem_of
from tests.unit.test_strict_json import REFUSED


@pytest.mark.parametrize("raw", [raw for raw in REFUSED.values() if len(raw) < 100_000])
def test_what_is_not_plain_json_is_malformed(shared_client: Client, raw: bytes) -> None:
    problem = problem_of(shared_client.create(raw))
    assert (problem["status"], problem["code"], problem["retryable"]) == (400, "malformed_json", False)


def test_nor_is_it_inside_a_payload(make_client: Callable[..., Client]) -> None:
    client = make_client(max_body_bytes=2_000_000)
    for name, raw in REFUSED.items():
        problem = problem_of(client.create(b'{"kind":"report","payload":{"x":' + raw + b"}}"))
        assert problem["code"] == "malformed_json", name


@pytest.mark.parametrize(
    "raw",
    [
        b'{"kind":"report","payload":{"n":' + b"9" * 1000 + b"}}",
        b'{"kind":"report","payload":{"n":1e400,"m":-1E-400}}',
        b'{"kind":"report","payload":{"n":123456789.5e300}}',
        b'{"kind":"report","payload":{"\\ud83d\\ude00":"\\uffff\\u0001\\u2028"}}',
        b'{"kind":"report","payload":' + b'{"a":' * 62 + b"1" + b"}" * 62 + b"}",
        b'{"kind":"report","payload":{"":{"":""}}}',
        b'{"kind":"report","payload":{"__proto__":1,"\\u0027; DROP TABLE ai_jobs":"%s%(x)s"}}',
        b'{"kind":"report","payload":{"n":[' + b",".join([b"1e-300"] * 3000) + b"]}}",
    ],
)
def test_the_strange_but_valid_is_stored_and_replayed(client: Client, raw: bytes) -> None:
    job = client.created(raw, key="k")
    assert client.created(raw, key="k")["job_id"] == job["job_id"]
    assert client.get(job["links"]["self"]).status_code == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/problem+json",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
        "multipart/form-data; boundary=x",
        "json",
    ],
)
def test_another_media_type_is_not_supported(shared_client: Client, content_type: str) -> None:
    problem = problem_of(shared_client.create(Content_Type=content_type))
    assert (problem["status"], problem["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=UTF-8", "APPLICATION/JSON", 'application/json; charset="utf-8"']
)
def test_the_media_type_may_be_spelled_otherwise(shared_client: Client, content_type: str) -> None:
    shared_client.created(Content_Type=content_type)


def test_a_compressed_body_is_not_supported(shared_client: Client) -> None:
    answered = shared_client.create(Content_Encoding="gzip")
    assert problem_of(answered)["code"] == "unsupported_media_type"
    assert answered.headers["Accept-Encoding"] == "identity"


def test_a_body_at_the_cap_is_read_and_one_byte_more_is_not(shared_client: Client) -> None:
    frame = b'{"kind":"report","payload":{"t":"%s"}}'
    filling = b"x" * (100_000 - len(frame % b""))
    shared_client.created(frame % filling)
    problem = problem_of(shared_client.create(frame % (filling + b"x")))
    assert (problem["status"], problem["code"]) == (413, "payload_too_large")
