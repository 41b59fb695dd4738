from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aijobs.config import ProviderSettings
from aijobs.providers import connections, resolver, transport
from aijobs.providers.base import Reply, Request
from aijobs.providers.exchange import Exchange
from aijobs.providers.openai_chat import OpenAIChat
from tests.providers.wire import CERTIFICATE, PATIENCE, Proxy, Script, Server

BODY = {"model": "m", "messages": [{"role": "user", "content": "what is the meaning of it all"}]}


class Client:
    """Makes calls with short timeouts."""

    def __init__(self) -> None:
        self.hook_calls = 0
        self.deltas: list[str] = []

    def exchange(self, deadline_seconds: float = PATIENCE, hook: Callable[[], None] | None = None) -> Exchange:
        def before_send() -> None:
            self.hook_calls += 1
            if hook is not None:
                hook()

        return Exchange(deadline_seconds, before_send)

    def call(
        self,
        url: str,
        *,
        exchange: Exchange | None = None,
        body: dict[str, Any] = BODY,
        api_key: str | None = "sk-secret-of-ours",
        request_id: str = "attempt-1",
        connect_seconds: float = 0.5,
        read_seconds: float = 0.5,
        **settings: Any,
    ) -> Reply:
        provider = ProviderSettings(
            name="p",
            adapter="openai-chat",
            base_url=url,
            connect_seconds=connect_seconds,
            read_seconds=read_seconds,
            **settings,
        )
        adapter = OpenAIChat(provider, api_key)
        return adapter.call(
            Request(body=body, client_request_id=request_id, dedupe_key="0" * 64),
            exchange=exchange or self.exchange(),
            on_delta=self.deltas.append,
        )


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start a server with a script for each connection."""
    servers: list[Server] = []

    def start(script: Script, **options: Any) -> Server:
        servers.append(Server(script, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = Proxy()
    yield server
    server.stop()


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine trusts the test's certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setattr(transport, "_local", threading.local())
    connections.trusted.cache_clear()
    yield
    connections.trusted.cache_clear()


@pytest.fixture
def hanging_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names are looked up for as long as the test takes, or until this is set."""
    over = threading.Event()
    numeric = socket.getaddrinfo

    def look_up(host: str, port: int, *options: int) -> Any:
        if socket.AI_NUMERICHOST in options:
            return numeric(host, port, *options)
        over.wait(PATIENCE)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(resolver.socket, "getaddrinfo", look_up)
    yield over
    over.set()


@pytest.fixture
def full_listener() -> Iterator[int]:
    """A port that takes no further connection: the system drops each attempt without an answer."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Every descriptor and thread that the test opened is gone at its end. To be asked for before any server."""
    gc.collect()  # what earlier tests left to it must not make room for a leak
    descriptors, threads = _descriptors(), _threads()
    yield
    until = time.monotonic() + PATIENCE / 2
    while (_descriptors() > descriptors or _threads() - threads) and time.monotonic() < until:
        time.sleep(0.01)
        if time.monotonic() > until - PATIENCE / 4:
            # CPython keeps a TLS server's socket in a cycle when its client has left before the handshake.
            gc.collect()
    assert _descriptors() <= descriptors
    assert not _threads() - threads


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _threads() -> Counter[str]:
    """By name; the one that keeps the deadlines stays."""
    return Counter(thread.name for thread in threading.enumerate() if thread.name != "deadlines")
