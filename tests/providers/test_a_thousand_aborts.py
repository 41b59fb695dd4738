"""A thousand calls ended from another thread at random moments, in every phase after name resolution, over every way.

Each ends at once, its peer sees that, nothing is left behind, and what may have been received is called unknown.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from aijobs.config import ProviderSettings
from aijobs.domain.failures import ErrorClass
from aijobs.errors import NotSent, ProviderError
from aijobs.providers.base import Request
from aijobs.providers.exchange import Exchange
from aijobs.providers.openai_chat import OpenAIChat
from tests.providers.wire import CHUNKED_HEAD, OPEN_HEAD, PATIENCE, STREAM_HEAD, Peer, Proxy, Server, chunked

ABORTS, AT_ONCE = 1000, 10
REASONS = ("cancelled", "deadline", "lease_lost")
LARGE, SMALL = "x" * 12_000_000, "hello"
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'


def after_the_request(*pieces: bytes) -> Callable[[Peer], None]:
    def run(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)
        peer.hang()

    return run


@dataclass(frozen=True)
class Place:
    """Where a call is stuck: what the server does, and over which way it is reached."""

    script: Callable[[Peer], None]
    tls: bool = False
    https: bool = False  # the client speaks TLS, whatever the server does
    proxied: bool = False
    prompt: str = SMALL


def _ways(script: Callable[[Peer], None], prompt: str = SMALL) -> list[Place]:
    return [
        Place(script, tls=tls, https=tls, proxied=proxied, prompt=prompt)
        for tls in (False, True)
        for proxied in (False, True)
    ]


PLACES: dict[str, list[Place]] = {
    "in the handshake": [Place(Peer.hang, https=True), Place(Peer.hang, https=True, proxied=True)],
    "in a write": _ways(Peer.ignore, LARGE),
    "before the headers": _ways(after_the_request()),
    "in the headers": _ways(after_the_request(b"HTTP/1.1 200 OK\r\nContent-Ty")),
    "in chunks": _ways(after_the_request(CHUNKED_HEAD, chunked(DELTA, end=False))),
    "in a body with a length": _ways(after_the_request(STREAM_HEAD + b"Content-Length: 9000\r\n\r\n", DELTA)),
    "in a body without": _ways(after_the_request(OPEN_HEAD, DELTA)),
}


class Lane:
    """One thread's servers and calls, one call after the other."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.servers = [
            (name, place, Server(place.script, tls=place.tls, small_buffers=place.prompt is LARGE))
            for name, places in PLACES.items()
            for place in places
        ]
        self.proxy = Proxy()
        self.silent_proxy = Server(Peer.hang)
        self.seen: Counter[str] = Counter()

    def stop(self) -> None:
        for server in (*(server for _, _, server in self.servers), self.proxy, self.silent_proxy):
            server.stop()

    def run(self, times: int, connecting_port: int) -> None:
        for number in range(times):
            reason = REASONS[number % len(REASONS)]
            if number % 10 == 0:
                self.abort("while connecting", f"http://127.0.0.1:{connecting_port}/v1", None, None, SMALL, reason)
            elif number % 10 == 1:
                url = f"http://localhost:{self.silent_proxy.port}"
                self.abort("in the proxy's CONNECT", "https://localhost:9/v1", url, self.silent_proxy, SMALL, reason)
            else:
                name, place, server = self.dice.choice(self.servers)
                url = f"{'https://localhost' if place.https else 'http://127.0.0.1'}:{server.port}/v1"
                self.abort(name, url, self.proxy.url if place.proxied else None, server, place.prompt, reason)

    def abort(self, name: str, url: str, proxy: str | None, server: Server | None, prompt: str, reason: str) -> None:
        settings = ProviderSettings(
            name="p", adapter="openai-chat", base_url=url, proxy=proxy, connect_seconds=PATIENCE, read_seconds=PATIENCE
        )
        exchange = Exchange(PATIENCE, lambda: None)
        aborted_at: list[float] = []

        def end() -> None:
            aborted_at.append(time.monotonic())
            exchange.abort(reason)

        timer = threading.Timer(self.dice.uniform(0.0, 0.04), end)
        timer.name = "test-abort"
        timer.start()
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        request = Request(body=body, client_request_id="id", dedupe_key="k")
        try:
            with pytest.raises((NotSent, ProviderError)) as raised:
                OpenAIChat(settings, None).call(request, exchange=exchange)
            late = time.monotonic() - aborted_at[0]
        finally:
            timer.join()
        assert late < 1, f"{name}: ended {late:.2f} s after the abort"
        if isinstance(raised.value, NotSent):
            assert not exchange.sent_possible and raised.value.reason == reason
        else:
            assert exchange.sent_possible
            failure = raised.value.failure
            assert (failure.error_class, failure.code) == (ErrorClass.UNKNOWN, f"aborted_{reason}")
        until = aborted_at[0] + 1
        while server is not None and not self._is_left(server):
            assert time.monotonic() < until, f"{name}: the peer still waits a second after the abort"
            time.sleep(0.002)
        self.seen[f"{name}: {exchange.phase}"] += 1

    def _is_left(self, server: Server) -> bool:
        """A server that does not even read cannot see that it was left."""
        return server.script is Peer.ignore or not server._open


@pytest.mark.usefixtures("no_leaks")
def test_a_thousand_aborts(trusted: None, full_listener: int) -> None:
    seed = int(os.environ.get("ABORT_SEED", random.randrange(10**6)))
    print(f"ABORT_SEED={seed}")
    lanes = [Lane(seed + number) for number in range(AT_ONCE)]
    try:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="test-lane") as pool:
            for done in [pool.submit(lane.run, ABORTS // AT_ONCE, full_listener) for lane in lanes]:
                done.result()
    finally:
        for lane in lanes:
            lane.stop()
        # CPython keeps a server's socket in a cycle when its client has left before the handshake.
        gc.collect()
    seen: Counter[str] = sum((lane.seen for lane in lanes), Counter())
    assert seen.total() == ABORTS
    phases = Counter(phase.rpartition(": ")[2] for phase in seen.elements())
    assert {"connecting", "sending", "sent", "headers"} <= phases.keys(), seen
    assert min(phases[phase] for phase in ("connecting", "sending", "sent", "headers")) >= 20, seen
