"""A body is the same request however it is framed, and no framing costs more than the cap."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.api.client import CHAT
from tests.api.server import Answer, Server, is_closed, read_answer

BODY = json.dumps(CHAT).encode()


def head(server: Server, key: str, *lines: str) -> bytes:
    fixed = [
        "POST /api/ai/jobs HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {server.key}",
        f"Idempotency-Key: {key}",
        "Content-Type: application/json",
    ]
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def chunked(body: bytes, size: int, end: bytes = b"0\r\n\r\n") -> bytes:
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end


def ask(server: Server, raw: bytes) -> Answer:
    with server.connect() as connection:
        connection.sendall(raw)
        return read_answer(connection)


def fresh() -> str:
    return uuid.uuid4().hex


def assert_problem(answered: Answer, status: int, code: str) -> None:
    assert answered.headers["Content-Type"] == "application/problem+json", answered.body
    assert (answered.status, answered.json["status"], answered.json["code"]) == (status, status, code)
    assert answered.headers["X-Request-Id"] == answered.json["request_id"]


@pytest.mark.parametrize(
    "framed",
    [
        chunked(BODY, 1),
        chunked(BODY, 7),
        chunked(BODY, 10_000),
        chunked(BODY, 16, b"0\r\nX-Trailer: a\r\nX-Other: b\r\n\r\n"),
        chunked(BODY, 16).replace(b"10\r\n", b"10;name=value\r\n"),
    ],
)
def test_chunks_are_the_same_request_as_a_length(shared_server: Server, framed: bytes) -> None:
    key = fresh()
    first = ask(shared_server, head(shared_server, key, f"Content-Length: {len(BODY)}") + BODY)
    again = ask(shared_server, head(shared_server, key, "Transfer-Encoding: chunked") + framed)
    assert (first.status, again.status) == (202, 202)
    assert again.json == first.json
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    "framed",
    [
        b"zz\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"5;" + b"x" * 20_000,
        chunked(BODY, 9, b"0\r\nbroken trailer\r\n\r\n"),
        chunked(BODY, 9, b"0\r\n" + b"X-T: y\r\n" * 60_000 + b"\r\n"),
    ],
)
def test_broken_chunks_are_a_bad_request_and_end_the_connection(shared_server: Server, framed: bytes) -> None:
    with shared_server.connect(5) as connection:
        connection.sendall(head(shared_server, fresh(), "Transfer-Encoding: chunked") + framed)
        answered = read_answer(connection)
        assert_problem(answered, 400, "bad_request")
        assert answered.headers["Connection"] == "close"
        assert is_closed(connection)


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: -5",),
        ("Content-Length: 5x",),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: chunked, chunked",),
    ],
)
def test_ambiguous_framing_is_refused(shared_server: Server, lines: tuple[str, ...]) -> None:
    """By gunicorn itself, before the application sees the request."""
    with shared_server.connect(5) as connection:
        connection.sendall(head(shared_server, fresh(), *lines) + b"5\r\nhello\r\n0\r\n\r\n")
        assert read_answer(connection).status in (400, 501)
        assert is_closed(connection)


@pytest.mark.parametrize("truncated", [BODY[:20], b""])
def test_a_body_shorter_than_its_length_is_a_bad_request(shared_server: Server, truncated: bytes) -> None:
    with shared_server.connect() as connection:
        connection.sendall(head(shared_server, fresh(), f"Content-Length: {len(BODY)}") + truncated)
        connection.shutdown(1)
        assert_problem(read_answer(connection), 400, "bad_request")


def test_chunks_that_end_early_are_a_bad_request(shared_server: Server) -> None:
    with shared_server.connect() as connection:
        connection.sendall(head(shared_server, fresh(), "Transfer-Encoding: chunked") + chunked(BODY, 9, b""))
        connection.shutdown(1)
        assert_problem(read_answer(connection), 400, "bad_request")


@pytest.mark.parametrize("lines", [(), ("Content-Length: 0",)])
def test_no_body_is_no_json(shared_server: Server, lines: tuple[str, ...]) -> None:
    assert_problem(ask(shared_server, head(shared_server, fresh(), *lines)), 400, "malformed_json")


def test_a_declared_length_over_the_cap_is_refused_unread(shared_server: Server) -> None:
    with shared_server.connect(5) as connection:
        connection.sendall(head(shared_server, fresh(), "Content-Length: 50000000"))
        answered = read_answer(connection)
        assert_problem(answered, 413, "payload_too_large")
        assert answered.headers["Connection"] == "close"
        assert is_closed(connection)


def test_fifty_megabytes_of_chunks_are_cut_off_at_the_cap(shared_server: Server) -> None:
    piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    before = memory_kib(shared_server)
    sent = 0
    with shared_server.connect(5) as connection:
        connection.sendall(head(shared_server, fresh(), "Transfer-Encoding: chunked"))
        try:
            for _ in range(800):
                connection.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
    # What is sent beyond what is read waits in the kernel's buffers on both sides.
    assert sent < 20_000_000
    assert memory_kib(shared_server) - before < 4_000


def test_chunks_over_the_cap_are_answered_too_large(shared_server: Server) -> None:
    with shared_server.connect(5) as connection:
        framed = chunked(b'"' + b"x" * 100_001, 50_000, b"")
        connection.sendall(head(shared_server, fresh(), "Transfer-Encoding: chunked") + framed)
        answered = read_answer(connection)
        assert_problem(answered, 413, "payload_too_large")
        assert is_closed(connection)


def test_a_client_may_wait_for_100_continue(shared_server: Server) -> None:
    with shared_server.connect() as connection:
        lines = (f"Content-Length: {len(BODY)}", "Expect: 100-continue")
        connection.sendall(head(shared_server, fresh(), *lines))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert read_answer(connection).status == 202


def test_the_body_of_a_get_is_ignored(shared_server: Server) -> None:
    with shared_server.connect() as connection:
        asked = f"GET /api/ai/jobs?limit=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {shared_server.key}\r\n"
        for _ in range(2):
            connection.sendall(asked.encode() + b"Content-Length: 5\r\n\r\nhello")
            assert read_answer(connection).status == 200


def test_an_unread_body_is_not_taken_for_the_next_request(shared_server: Server) -> None:
    smuggled = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    with shared_server.connect() as connection:
        lines = ("Content-Encoding: gzip", f"Content-Length: {len(smuggled)}")
        connection.sendall(head(shared_server, fresh(), *lines) + smuggled)
        assert_problem(read_answer(connection), 415, "unsupported_media_type")
        connection.sendall(head(shared_server, fresh(), f"Content-Length: {len(BODY)}") + BODY)
        assert read_answer(connection).status == 202


@pytest.mark.parametrize("values", [("a", "b"), ('"a', 'b"')])
def test_two_key_headers_are_one_malformed_key(shared_server: Server, values: tuple[str, str]) -> None:
    second = f"Idempotency-Key: {values[1]}"
    raw = head(shared_server, values[0], second, f"Content-Length: {len(BODY)}") + BODY
    assert_problem(ask(shared_server, raw), 400, "idempotency_key_invalid")


def test_a_key_of_utf8_bytes_is_malformed(shared_server: Server) -> None:
    raw = head(shared_server, "caf\u00e9", f"Content-Length: {len(BODY)}") + BODY
    assert_problem(ask(shared_server, raw), 400, "idempotency_key_invalid")


@pytest.mark.parametrize(
    "address", ["/api/ai/jobs/%00", "/api/ai/jobs/%ff%fe", "/api/ai/jobs/..%2f..", "/api/ai/jobs?%ff"]
)
def test_strange_addresses_are_answered_with_problems(shared_server: Server, address: str) -> None:
    answered = shared_server.request("GET", address)
    assert answered.status in (400, 404)
    assert answered.headers["Content-Type"] == "application/problem+json"


def memory_kib(server: Server) -> int:
    """The resident memory of the larger worker."""
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in server.workers()]
    return max(int(status.split("VmRSS:")[1].split()[0]) for status in statuses)
