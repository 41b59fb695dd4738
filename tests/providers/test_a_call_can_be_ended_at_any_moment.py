"""From another thread, in every phase, over every route; and what it then reports is never wrong about the request."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from aijobs.domain.failures import ErrorClass
from aijobs.errors import NotSent, ProviderError
from aijobs.providers.base import Reply
from aijobs.providers.exchange import Exchange
from tests.providers.conftest import BODY, Client
from tests.providers.test_faults_after_the_request_is_sent import DELTA, DONE, FINISH, script
from tests.providers.wire import CHUNKED_HEAD, OPEN_HEAD, PATIENCE, STREAM_HEAD, Listening, Peer, Proxy, Server, chunked

Serve = Callable[..., Server]
LARGE_BODY = {**BODY, "padding": "x" * 16_000_000}
pytestmark = pytest.mark.usefixtures("no_leaks", "trusted")


@dataclass
class Call:
    """A call in a thread of its own, with timeouts that no test waits for."""

    client: Client
    url: str
    options: dict[str, object] = field(default_factory=dict)
    hook: Callable[[], None] | None = None
    deadline_seconds: float = 2 * PATIENCE
    outcome: Reply | BaseException | None = None

    def __post_init__(self) -> None:
        self.exchange: Exchange = self.client.exchange(self.deadline_seconds, self.hook)
        self.thread = threading.Thread(target=self._run, name="call")
        self.thread.start()

    def _run(self) -> None:
        patient = {"connect_seconds": 2 * PATIENCE, "read_seconds": 2 * PATIENCE}
        try:
            self.outcome = self.client.call(self.url, exchange=self.exchange, **patient | self.options)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.outcome = error

    def ended(self) -> BaseException | Reply | None:
        """The outcome, which comes at once, compared with the timeouts."""
        self.thread.join(PATIENCE / 3)
        assert not self.thread.is_alive()
        return self.outcome

    def is_in(self, phase: str) -> None:
        self.waits_for(lambda: self.exchange.phase == phase)

    def waits_for(self, fact: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not fact():
            assert time.monotonic() < until, self.exchange.phase
            time.sleep(0.001)


def is_unsent(outcome: object) -> bool:
    return isinstance(outcome, NotSent) and outcome.reason == "cancelled"


def is_unknown(outcome: object) -> bool:
    return (
        isinstance(outcome, ProviderError)
        and outcome.failure.error_class is ErrorClass.UNKNOWN
        and outcome.failure.code == "aborted_cancelled"
    )


def test_before_it_begins(client: Client, serve: Serve) -> None:
    server = serve(Peer.hang)
    exchange = client.exchange()
    exchange.abort("cancelled")
    exchange.abort("drain")
    with pytest.raises(NotSent, match="cancelled"):
        client.call(server.url, exchange=exchange)
    assert (server.connections, client.hook_calls) == (0, 0)


def test_while_the_name_is_looked_up(client: Client, hanging_resolver: threading.Event) -> None:
    call = Call(client, "http://provider.invalid/v1")
    call.waits_for(lambda: call.exchange._waited_for is not None)
    assert call.exchange.phase == "resolving"
    call.exchange.abort("cancelled")
    assert is_unsent(call.ended())
    hanging_resolver.set()


def test_while_connecting(client: Client, full_listener: int) -> None:
    call = Call(client, f"http://127.0.0.1:{full_listener}/v1")
    call.is_in("connecting")
    call.exchange.abort("cancelled")
    assert is_unsent(call.ended())


def test_in_the_tls_handshake(client: Client, serve: Serve) -> None:
    server = serve(Peer.hang)
    call = Call(client, server.url.replace("http:", "https:"))
    assert server.reached.wait(PATIENCE)
    call.exchange.abort("cancelled")
    assert is_unsent(call.ended())


def test_while_the_proxy_connects(client: Client, serve: Serve) -> None:
    server = serve(Peer.hang)
    call = Call(client, "https://provider.invalid/v1", {"proxy": f"http://127.0.0.1:{server.port}"})
    assert server.reached.wait(PATIENCE)
    call.exchange.abort("cancelled")
    assert is_unsent(call.ended())


def test_in_the_tls_handshake_behind_a_proxy(client: Client, serve: Serve, proxy: Proxy) -> None:
    server = serve(Peer.hang)
    call = Call(client, f"https://localhost:{server.port}/v1", {"proxy": proxy.url})
    assert server.reached.wait(PATIENCE)
    call.exchange.abort("cancelled")
    assert is_unsent(call.ended())


def test_while_it_asks_for_leave_to_send(client: Client, serve: Serve) -> None:
    listening = Listening()
    server = serve(listening)
    asked, go_on = threading.Event(), threading.Event()

    def hook() -> None:
        asked.set()
        go_on.wait(PATIENCE)

    call = Call(client, server.url, hook=hook)
    assert asked.wait(PATIENCE)
    call.exchange.abort("cancelled")
    go_on.set()
    assert is_unsent(call.ended())
    assert listening.heard() == b""


ROUTES = ["plain", "tls", "proxy", "connect"]


def routed(serve: Serve, proxy: Proxy, route: str, run: Callable[[Peer], None]) -> tuple[Server, dict[str, object]]:
    server = serve(run, tls=route in ("tls", "connect"))
    return server, {"proxy": proxy.url} if route in ("proxy", "connect") else {}


@pytest.mark.parametrize("route", ["plain", "tls"])
def test_while_a_write_is_blocked(route: str, client: Client, serve: Serve, proxy: Proxy) -> None:
    server, options = routed(serve, proxy, route, Peer.ignore)
    call = Call(client, server.url, options | {"body": LARGE_BODY})
    call.is_in("sending")
    assert server.reached.wait(PATIENCE)
    call.exchange.abort("cancelled")
    assert is_unsent(call.ended())
    assert server.posts == 0


WAITS: dict[str, tuple[bytes, ...]] = {
    "for the headers": (),
    "within the headers": (b"HTTP/1.1 200 OK\r\nContent-Type: text/ev",),
    "for a chunk": (CHUNKED_HEAD, chunked(DELTA, end=False)),
    "within a chunk": (CHUNKED_HEAD, chunked(DELTA, end=False)[:-9]),
    "for the rest of a length": (STREAM_HEAD + b"Content-Length: 5000\r\n\r\n", DELTA),
    "for more without a length": (OPEN_HEAD, DELTA, FINISH),
    "for the body of an error": (b"HTTP/1.1 500 No\r\nContent-Length: 50\r\n\r\n",),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("route", ROUTES)
def test_while_it_waits(wait: str, route: str, client: Client, serve: Serve, proxy: Proxy) -> None:
    sent = threading.Event()

    def run(peer: Peer) -> None:
        script(*WAITS[wait])(peer)
        sent.set()
        peer.hang()

    server, options = routed(serve, proxy, route, run)
    call = Call(client, server.url, options)
    assert sent.wait(PATIENCE)
    call.is_in("sent" if "headers" in wait else "headers")
    call.exchange.abort("cancelled")
    outcome = call.ended()
    if "error" in wait:
        assert isinstance(outcome, ProviderError)
        assert outcome.failure.code == "provider_error"
    else:
        assert is_unknown(outcome)
    assert (server.posts, server.connections) == (1, 1)


def test_a_reply_that_is_whole_is_kept_though_the_call_was_ended(client: Client, serve: Serve) -> None:
    """What was paid for is not thrown away: the last event and the abort come in the same moment."""
    server = serve(script(CHUNKED_HEAD, chunked(DELTA + FINISH + DONE)))
    exchange = client.exchange()
    client.deltas = _Ending(exchange)
    assert client.call(server.url, exchange=exchange).text == "Hi"
    assert exchange.reason == "cancelled"


class _Ending(list[str]):
    """Ends the exchange at the first delta."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def append(self, delta: str) -> None:
        self._exchange.abort("cancelled")


@pytest.mark.parametrize("route", ROUTES)
def test_at_any_moment_whatsoever(route: str, client: Client, serve: Serve, proxy: Proxy) -> None:
    """`NotSent` is only ever said of a request that the provider did not receive, and every call ends at once."""

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(CHUNKED_HEAD)
        for piece in (DELTA, DELTA, DELTA, FINISH, DONE):
            peer.send(chunked(piece, end=False))
            time.sleep(0.002)
        peer.send(chunked())

    server, options = routed(serve, proxy, route, run)
    dice = random.Random(route)
    unsent: set[str] = set()
    kinds: set[str] = set()
    for number in range(30):
        request_id = f"call-{number}"
        call = Call(client, server.url, options | {"request_id": request_id})
        time.sleep(dice.uniform(0, 0.02))  # the moment is the point, and is left to chance
        call.exchange.abort("cancelled")
        outcome = call.ended()
        assert is_unsent(outcome) or is_unknown(outcome) or isinstance(outcome, Reply), outcome
        kinds.add(type(outcome).__name__)
        if isinstance(outcome, NotSent):
            unsent.add(request_id)
    received = [request.headers["x-client-request-id"] for request in server.requests]
    assert len(received) == len(set(received))
    assert not unsent & set(received)
    assert len(kinds) > 1


DRIPS = {
    "headers": (b"", b"HTTP/1.1 200 OK\r\n" + b"X-Slow: y\r\n" * 90),
    "body": (CHUNKED_HEAD, chunked(DELTA * 90)),
    "comments": (OPEN_HEAD, b": still here\n\n" * 300),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 300),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_the_deadline_holds_though_bytes_keep_coming(drip: str, client: Client, serve: Serve) -> None:
    at_once, slowly = DRIPS[drip]

    def run(peer: Peer) -> None:
        peer.request()
        peer.send(at_once)
        peer.drip(slowly)

    server = serve(run)
    call = Call(client, server.url, deadline_seconds=0.3)
    outcome = call.ended()
    assert isinstance(outcome, ProviderError)
    assert (outcome.failure.error_class, outcome.failure.code) == (ErrorClass.UNKNOWN, "aborted_deadline")
    assert call.exchange.reason == "deadline"


def test_the_deadline_holds_before_the_request_is_sent(client: Client, serve: Serve) -> None:
    server = serve(Peer.hang)
    outcome = Call(client, f"https://localhost:{server.port}/v1", deadline_seconds=0.2).ended()
    assert isinstance(outcome, NotSent)
    assert outcome.reason == "deadline"


def test_a_deadline_that_has_passed_sends_nothing(client: Client, serve: Serve) -> None:
    server = serve(Peer.hang)
    with pytest.raises(NotSent, match="deadline"):
        client.call(server.url, exchange=client.exchange(-1.0))
    late = client.exchange(0.2, lambda: time.sleep(0.3))  # the leave comes after the deadline
    with pytest.raises(NotSent, match="deadline"):
        client.call(server.url, exchange=late)
    assert server.posts == 0


def test_many_deadlines_at_once_are_kept_by_one_thread(client: Client, serve: Serve) -> None:
    server = serve(script(then=Peer.hang))
    calls = [Call(client, server.url, deadline_seconds=0.3 + number / 50) for number in range(8)]
    for call in calls:
        call.ended()
        assert call.exchange.reason == "deadline"
    assert sum(thread.name == "deadlines" for thread in threading.enumerate()) == 1
