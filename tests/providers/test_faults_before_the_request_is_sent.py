"""Whatever breaks before the last byte of the request has left is safe to repeat, and is told from what comes after."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from aijobs.domain.failures import ErrorClass, Failure
from aijobs.errors import ProviderError, StoreUnavailable
from aijobs.providers import resolver
from tests.providers.conftest import BODY, Client
from tests.providers.wire import PATIENCE, Listening, Peer, Proxy, Server, response

Serve = Callable[..., Server]
LARGE_BODY = {**BODY, "padding": "x" * 16_000_000}


def failure_of(client: Client, url: str, **options: object) -> tuple[Failure, str]:
    """The failure of a call, and the phase it was in; it had not been sent."""
    exchange = client.exchange()
    with pytest.raises(ProviderError) as caught:
        client.call(url, exchange=exchange, **options)  # type: ignore[arg-type]
    assert not exchange.sent_possible
    assert not caught.value.failure.refused
    return caught.value.failure, caught.value.phase


def is_transient(failure: Failure, code: str) -> bool:
    return (failure.error_class, failure.code) == (ErrorClass.TRANSIENT, code)


def is_permanent(failure: Failure, code: str) -> bool:
    return (failure.error_class, failure.code) == (ErrorClass.PERMANENT, code)


def test_a_name_that_does_not_resolve(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_name(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(resolver.socket, "getaddrinfo", no_such_name)
    failure, phase = failure_of(client, "http://provider.invalid/v1")
    assert is_transient(failure, "name_not_resolved")
    assert phase == "resolving"


def test_a_name_that_no_resolver_would_take(client: Client) -> None:
    failure, _ = failure_of(client, f"http://{'x' * 64}.invalid/v1")
    assert failure.error_class is ErrorClass.TRANSIENT


def test_a_hanging_resolver_costs_no_more_than_the_connect_timeout(
    client: Client, hanging_resolver: threading.Event
) -> None:
    began = time.monotonic()
    failure, phase = failure_of(client, "http://provider.invalid/v1", connect_seconds=0.2)
    assert is_transient(failure, "name_not_resolved")
    assert phase == "resolving"
    assert time.monotonic() - began < PATIENCE / 2


def test_resolutions_under_way_are_bounded(
    client: Client, hanging_resolver: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(resolver, "_slots", resolver._Slots())
    failure_of(client, "http://provider.invalid/v1", connect_seconds=0.1)
    failure, _ = failure_of(client, "http://provider.invalid/v1", connect_seconds=PATIENCE)
    assert is_transient(failure, "name_not_resolved")


def test_nobody_listens(client: Client) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        failure, phase = failure_of(client, f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert is_transient(failure, "connect_failed")
    assert phase == "connecting"


def test_the_connection_is_never_answered(client: Client, full_listener: int) -> None:
    failure, phase = failure_of(client, f"http://127.0.0.1:{full_listener}/v1", connect_seconds=0.2)
    assert is_transient(failure, "connect_failed")
    assert phase == "connecting"


def test_the_second_address_of_a_name_is_tried(client: Client, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(lambda peer: (peer.request(), peer.send(response(400))))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        def two_addresses(*_: object) -> list[tuple[object, ...]]:
            ports = (taken.getsockname()[1], server.port)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

        monkeypatch.setattr(resolver.socket, "getaddrinfo", two_addresses)
        with pytest.raises(ProviderError, match="HTTP 400"):
            client.call("http://provider.invalid/v1")
    assert server.posts == 1


def test_a_certificate_nobody_vouches_for(client: Client, serve: Serve) -> None:
    server = serve(lambda peer: peer.request(), tls=True)
    failure, phase = failure_of(client, server.url)
    assert is_permanent(failure, "provider_certificate")
    assert phase == "connecting"
    assert client.hook_calls == 0


@pytest.mark.usefixtures("trusted")
def test_a_certificate_for_another_name(client: Client, serve: Serve) -> None:
    server = serve(lambda peer: peer.request(), tls=True)
    failure, _ = failure_of(client, server.url.replace("localhost", "127.0.0.1"))
    assert is_permanent(failure, "provider_certificate")


def test_a_peer_that_speaks_no_tls(client: Client, serve: Serve) -> None:
    server = serve(lambda peer: peer.send(response(400)))
    failure, _ = failure_of(client, server.url.replace("http:", "https:"))
    assert is_permanent(failure, "provider_certificate")


@pytest.mark.parametrize("script", [Peer.hang, Peer.reset, lambda peer: None], ids=["hangs", "resets", "closes"])
def test_the_tls_handshake_breaks(client: Client, serve: Serve, script: Callable[[Peer], None]) -> None:
    server = serve(script)
    failure, phase = failure_of(client, server.url.replace("http:", "https:"))
    assert is_transient(failure, "connect_failed")
    assert phase == "connecting"


def test_the_proxy_is_down(client: Client, serve: Serve) -> None:
    server = serve(lambda peer: peer.request())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for url in (server.url, "https://provider.invalid/v1"):
            failure, phase = failure_of(client, url, proxy=nobody)
            assert is_transient(failure, "connect_failed")
            assert phase == "connecting"
    assert server.connections == 0


def test_the_proxy_cannot_connect(client: Client, proxy: Proxy) -> None:
    proxy.connect_reply = b"HTTP/1.1 502 Bad Gateway\r\n\r\n"
    failure, phase = failure_of(client, "https://provider.invalid/v1", proxy=proxy.url)
    assert is_transient(failure, "connect_failed")
    assert phase == "connecting"


def test_the_proxy_wants_credentials(client: Client, proxy: Proxy, serve: Serve) -> None:
    proxy.connect_reply = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    failure, _ = failure_of(client, "https://provider.invalid/v1", proxy=proxy.url)
    assert is_permanent(failure, "proxy_denied")
    forwarding = serve(lambda peer: (peer.request(), peer.send(response(407))))
    with pytest.raises(ProviderError) as caught:
        client.call("http://provider.invalid/v1", proxy=f"http://127.0.0.1:{forwarding.port}")
    assert is_permanent(caught.value.failure, "proxy_denied")


def test_the_proxy_is_silent(client: Client, serve: Serve) -> None:
    silent = serve(Peer.hang)
    failure, phase = failure_of(client, "https://provider.invalid/v1", proxy=f"http://127.0.0.1:{silent.port}")
    assert is_transient(failure, "connect_failed")
    assert phase == "connecting"


def test_the_connection_breaks_while_the_request_is_written(client: Client, serve: Serve) -> None:
    def read_a_little(peer: Peer) -> None:
        peer.connection.recv(1000)
        peer.reset()

    server = serve(read_a_little, small_buffers=True)
    failure, phase = failure_of(client, server.url, body=LARGE_BODY)
    assert is_transient(failure, "send_failed")
    assert (phase, server.posts, client.hook_calls) == ("sending", 0, 1)


def test_the_provider_stops_reading(client: Client, serve: Serve) -> None:
    server = serve(Peer.ignore, small_buffers=True)
    failure, phase = failure_of(client, server.url, body=LARGE_BODY, read_seconds=0.3)
    assert is_transient(failure, "send_failed")
    assert (phase, server.posts) == ("sending", 0)


def test_a_slow_reader_is_given_the_read_timeout_not_the_connect_timeout(client: Client, serve: Serve) -> None:
    def read_late(peer: Peer) -> None:
        threading.Event().wait(0.6)  # three connect timeouts
        peer.request()
        peer.send(response(400))

    server = serve(read_late)
    with pytest.raises(ProviderError, match="HTTP 400"):
        client.call(server.url, body=LARGE_BODY, connect_seconds=0.2, read_seconds=PATIENCE)
    assert server.posts == 1


def test_a_refusal_that_comes_before_the_request_is_written_is_read(client: Client, serve: Serve) -> None:
    def refuse(peer: Peer) -> None:
        peer.connection.recv(1000)
        peer.send(response(413, b'{"error": {"message": "too large"}}'))

    server = serve(refuse, small_buffers=True)
    with pytest.raises(ProviderError) as caught:
        client.call(server.url, body=LARGE_BODY)
    assert is_permanent(caught.value.failure, "provider_refused_request")
    assert server.posts == 0


@pytest.mark.parametrize(
    "error", [StoreUnavailable("down"), BrokenPipeError(), ConnectionResetError(), ValueError("no"), TimeoutError()]
)
@pytest.mark.usefixtures("no_leaks", "trusted")
@pytest.mark.parametrize("tls", [False, True])
def test_an_error_of_the_leave_to_send_comes_through_and_nothing_is_sent(error: Exception, tls: bool) -> None:
    listening, client = Listening(), Client()
    server = Server(listening, tls=tls)

    def refuse() -> None:
        raise error

    try:
        with pytest.raises(type(error)) as caught:
            client.call(server.url, exchange=client.exchange(hook=refuse))
        assert listening.heard() == b""
    finally:
        server.stop()
    assert caught.value is error
    assert client.hook_calls == 1
