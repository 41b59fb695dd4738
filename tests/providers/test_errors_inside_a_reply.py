"""A provider may answer 200 and then report an error: it counts by what it says while nothing was said before it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from aijobs.domain.failures import ErrorClass
from aijobs.errors import ProviderError
from tests.providers.conftest import Client
from tests.providers.test_faults_after_the_request_is_sent import DELTA, script
from tests.providers.wire import CHUNKED_HEAD, Server, chunked, response

Serve = Callable[..., Server]
U, P, T, G = ErrorClass.UNKNOWN, ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.GATE

ERRORS = [
    ({"type": "overloaded_error"}, T, "provider_overloaded"),
    ({"type": "rate_limit_error"}, T, "rate_limited"),
    ({"type": "invalid_request_error"}, P, "provider_refused_request"),
    ({"type": "insufficient_quota"}, G, "provider_quota_used_up"),
    ({"type": "BadRequestError", "code": 400}, P, "provider_refused_request"),
    ({"code": 503}, T, "provider_overloaded"),
    ({"code": "429"}, T, "rate_limited"),
    ({"code": 502}, U, "stream_error"),
    ({"code": 200}, U, "stream_error"),
    ({"type": "server_error"}, U, "stream_error"),
    ({"type": "a_type_of_tomorrow"}, U, "stream_error"),
    ({"type": ["odd"], "code": {"very": "odd"}}, U, "stream_error"),
    ("just words", U, "stream_error"),
]


@pytest.mark.parametrize(("error", "error_class", "code"), ERRORS)
@pytest.mark.parametrize("streamed", [True, False])
def test_an_error_before_any_output_counts_by_what_it_says(
    error: object, error_class: ErrorClass, code: str, streamed: bool, client: Client, serve: Serve
) -> None:
    document = json.dumps({"error": error}).encode()
    whole = response(200, document, "Content-Type: application/json")
    server = serve(script(CHUNKED_HEAD, chunked(b"data: " + document + b"\n\n")) if streamed else script(whole))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url)
    failure = caught.value.failure
    assert (failure.error_class, failure.code) == (error_class, code)
    # The request was taken, so that the attempt counts; only a shut gate keeps the job waiting instead.
    assert failure.refused is (error_class is G)
    assert server.posts == 1


@pytest.mark.parametrize(("error", "error_class", "code"), ERRORS)
def test_an_error_after_output_is_unknown(
    error: object, error_class: ErrorClass, code: str, client: Client, serve: Serve
) -> None:
    event = b"data: " + json.dumps({"error": error}).encode() + b"\n\n"
    server = serve(script(CHUNKED_HEAD, chunked(DELTA, event)))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url)
    assert (caught.value.failure.error_class, caught.value.failure.code) == (U, "stream_error")


def test_usage_that_was_reported_before_the_error_is_kept(client: Client, serve: Serve) -> None:
    usage = b'data: {"id": "c-1", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\n'
    server = serve(script(CHUNKED_HEAD, chunked(usage, DELTA, b'data: {"error": {"type": "server_error"}}\n\n')))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url)
    assert caught.value.usage is not None
    assert (caught.value.usage.input_tokens, caught.value.usage.output_tokens) == (5, 2)
    assert (caught.value.provider_operation_id, caught.value.provider_request_id) == ("c-1", "req-7")
