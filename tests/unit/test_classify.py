from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aijobs.domain.failures import ErrorClass
from aijobs.providers import classify
from aijobs.providers.exchange import UNSENT_PHASES, Exchange
from aijobs.providers.transport import TransportFailure

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(sorted(classify._BY_NAME)),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "code", "type", "message"]), inner),
)


@given(st.integers(100, 999), ANY_JSON)
def test_every_status_and_body_has_a_meaning_and_no_success_comes_of_it(status: int, body: Any) -> None:
    failure = classify.of_response(status, {}, body, NOW)
    assert failure.message.isprintable()
    assert len(failure.message) <= 500
    if status >= 500 and status not in (503, 521, 522, 523, 529):
        assert failure.error_class is ErrorClass.UNKNOWN
    if failure.refused:
        assert failure.error_class in (ErrorClass.TRANSIENT, ErrorClass.GATE)


@given(ANY_JSON)
def test_an_error_in_a_reply_is_never_more_certain_after_output(error: Any) -> None:
    assert classify.of_error_in_reply({"error": error}, had_output=True).error_class is ErrorClass.UNKNOWN
    assert len(classify.of_error_in_reply({"error": error}, had_output=False).message) <= 500


@pytest.mark.parametrize("phase", ["new", "resolving", "connecting", "connected", "sending", "sent", "headers"])
def test_a_broken_exchange_is_unknown_exactly_if_the_request_may_have_arrived(phase: str) -> None:
    exchange = Exchange(1.0, lambda: None)
    exchange.phase = phase
    failure = classify.of_transport(TransportFailure(ConnectionResetError("a secret")), exchange)
    expected = ErrorClass.TRANSIENT if phase in UNSENT_PHASES else ErrorClass.UNKNOWN
    assert failure.error_class is expected
    assert "secret" not in failure.message


def test_a_port_is_not_taken_for_a_proxys_answer() -> None:
    exchange = Exchange(1.0, lambda: None)
    exchange.phase = "connecting"
    failure = classify.of_transport(TransportFailure(OSError("host='10.0.0.1', port=40712: refused")), exchange)
    assert failure.error_class is ErrorClass.TRANSIENT
