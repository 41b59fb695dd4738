"""Clients that do nothing hold up nobody else."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import pytest

from tests.api.server import Server, is_closed, read_answer
from tests.api.test_gunicorn_bodies import head

THREADS = 4


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve(AIJOBS_WEB_PROCESSES="1", AIJOBS_WEB_THREADS=str(THREADS))


def test_connections_without_a_request_take_no_thread(server: Server) -> None:
    with contextlib.ExitStack() as idle:
        for _ in range(50):
            idle.enter_context(server.connect())
        assert server.seconds_to_live() < 1


@pytest.mark.parametrize("sent", [b"GARBAGE\r\n\r\n", b"GET /health/live HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_clients_that_do_not_hang_up_do_not_stop_the_process(server: Server, sent: bytes) -> None:
    with contextlib.ExitStack() as lingering:
        for _ in range(THREADS - 1):
            connection = lingering.enter_context(server.connect())
            connection.sendall(sent)
        assert server.seconds_to_live() < 1


def test_threads_of_stalled_requests_come_back(server: Server) -> None:
    """Half a body, half a head: each holds a thread until the limit for one receive, and no longer."""
    unfinished = head(server, "stalled", "Content-Length: 1000") + b'{"kind"'
    with contextlib.ExitStack() as stalled:
        connections: list[socket.socket] = []
        for number in range(THREADS):
            connection = stalled.enter_context(server.connect())
            connection.sendall(unfinished if number else b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Half")
            connections.append(connection)
        assert server.seconds_to_live() < 13
        for connection in connections[1:]:
            answered = read_answer(connection)
            assert (answered.status, answered.json["code"]) == (408, "request_timeout")
            assert answered.headers["Connection"] == "close"
            assert is_closed(connection)
        assert is_closed(connections[0])
