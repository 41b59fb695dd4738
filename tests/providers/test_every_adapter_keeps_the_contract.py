"""What base.Adapter promises, kept by every adapter there is: one request, its phase, its class, no word of secrets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from aijobs.config import ProviderSettings, Settings
from aijobs.config_file import ADAPTERS
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.errors import NotSent, ProviderError
from aijobs.providers.base import Adapter, NothingFound, Reply, Request
from aijobs.providers.exchange import Exchange
from aijobs.providers.registry import build_adapter
from aijobs.simulator import Simulator
from tests.providers.wire import OPEN_HEAD, PATIENCE, Peer, Proxy, Server, response

Serve = Callable[..., Server]
U, P, T, G = ErrorClass.UNKNOWN, ErrorClass.PERMANENT, ErrorClass.TRANSIENT, ErrorClass.GATE
SECRET, PROMPT = "sk-secret-of-ours-0123456789", "what is the meaning of it all, and why"
# Every adapter in every way it can be configured to work.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("openai-chat", {}),
    "openai-chat stored": ("openai-chat", {"stored": True}),
    "openai-responses": ("openai-responses", {"background": False}),
    "openai-responses background": ("openai-responses", {"background": True}),
    "anthropic": ("anthropic", {}),
    "http": ("http", {"result_path": "output.text"}),
    "http deduplicated": ("http", {"result_path": "output.text", "dedupe_header": "Idempotency-Key"}),
}


@pytest.fixture(params=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def adapter_of(variant: str, url: str, **settings: Any) -> Adapter:
    name, own = VARIANTS[variant]
    base_url = f"{url}/plain" if name == "http" else url
    given = {"connect_seconds": 0.5, "read_seconds": 0.5} | own | settings
    provider = ProviderSettings(name="p", adapter=name, base_url=base_url, api_key_env="KEY", **given)
    made = Settings(database_url="postgresql://x", kinds={}, providers={"p": provider})
    return build_adapter(made, "p")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)


def call(adapter: Adapter, prompt: str = PROMPT, *, exchange: Exchange | None = None, **listeners: Any) -> Reply:
    wanted = {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": prompt}],
    }
    body = adapter.chat_body(wanted) | {"prompt": prompt} if _is_http(adapter) else adapter.chat_body(wanted)
    request = Request(body=body, client_request_id="job.1.step", dedupe_key="a" * 64)
    return adapter.call(request, exchange=exchange or Exchange(PATIENCE, lambda: None), **listeners)


def _is_http(adapter: Adapter) -> bool:
    return type(adapter).__name__ == "Http"


def failing(act: Callable[[], Any]) -> Failure:
    with pytest.raises(ProviderError) as raised:
        act()
    told = f"{raised.value} {raised.value.failure.message}"
    assert SECRET not in told and PROMPT not in told
    return raised.value.failure


def after_the_request(*pieces: bytes, then: Callable[[Peer], None] | None = None) -> Callable[[Peer], None]:
    def run(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)
        if then is not None:
            then(peer)

    return run


def test_every_adapter_there_is_is_held_to_it() -> None:
    assert {name for name, _ in VARIANTS.values()} == set(ADAPTERS)


@pytest.mark.parametrize("over", ["plain", "proxy"])
def test_a_success_has_its_text_and_usage_from_one_request(variant: str, over: str, proxy: Proxy) -> None:
    deltas: list[str] = []
    with Simulator() as sim:
        adapter = adapter_of(variant, sim.url, **({"proxy": proxy.url} if over == "proxy" else {}))
        reply = call(adapter, "[[sim: marker=m text='one two three']]", on_delta=deltas.append)
        assert reply.text == "one two three" and reply.http_status == 200
        assert "".join(deltas) == ("" if _is_http(adapter) else reply.text)
        assert reply.usage.output_tokens == 3 and (reply.usage.input_tokens or 0) > 0
        assert reply.provider_request_id is not None
        (seen,) = sim.calls("m")
        assert seen["client_request_id"] == "job.1.step" and seen["status"] == 200
    assert bool(proxy.lines) == (over == "proxy")


def test_over_tls_as_well(variant: str, serve: Serve, trusted: None) -> None:
    server = serve(after_the_request(response(401, b"{}")), tls=True)
    assert failing(lambda: call(adapter_of(variant, server.url))).error_class is G
    assert server.posts == 1


LOST: dict[str, Callable[[Peer], None]] = {
    "closed": after_the_request(),
    "reset": after_the_request(then=Peer.reset),
    "silent": after_the_request(then=Peer.hang),
    "half a status line": after_the_request(b"HTTP/1."),
    "half the headers": after_the_request(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Mo"),
    "no body": after_the_request(OPEN_HEAD),
    "not JSON": after_the_request(response(200, b"<html>", "Content-Type: application/json")),
    "another form": after_the_request(response(200, b'{"unexpected": 1}', "Content-Type: application/json")),
    "no content": after_the_request(response(204)),
}


@pytest.mark.parametrize("how", list(LOST))
def test_a_lost_answer_is_unknown_and_asked_for_once(variant: str, serve: Serve, how: str) -> None:
    server = serve(LOST[how])
    failure = failing(lambda: call(adapter_of(variant, server.url)))
    assert failure.error_class is U and not failure.refused
    assert server.posts == 1


STATUSES = {
    301: P, 307: P, 400: P, 401: G, 402: G, 403: P, 404: P, 408: U, 409: T, 413: P, 422: P, 425: T, 429: T, 499: U,
    500: U, 502: U, 503: T, 504: U, 520: U, 521: T, 524: U, 529: T,
}  # fmt: skip


@pytest.mark.parametrize("status", list(STATUSES))
def test_an_error_status_has_its_class(variant: str, serve: Serve, status: int) -> None:
    decoy = serve(after_the_request(response(200)))
    body = b'{"error": {"message": "about ' + PROMPT.encode() + b" with " + SECRET.encode() + b'", "type": "x"}}'
    answer = response(status, body, "Content-Type: application/json", "Retry-After: 7", f"Location: {decoy.url}")
    server = serve(after_the_request(answer))
    failure = failing(lambda: call(adapter_of(variant, server.url)))
    assert failure.error_class is STATUSES[status]
    assert failure.refused == (status in (401, 402, 429, 503, 529))
    assert failure.retry_after_seconds == 7.0
    assert (server.posts, decoy.connections) == (1, 0)


def test_money_and_keys_shut_the_gate_by_the_bodys_word(variant: str, serve: Serve) -> None:
    for status, name in (
        (429, "insufficient_quota"),
        (429, "enforced_spend_limit_reached"),
        (400, "organization_on_hold"),
    ):
        inner = f'{{"type": "rate_limit_error", "code": "{name}", "details": {{"error_code": "{name}"}}}}'
        server = serve(after_the_request(response(status, f'{{"error": {inner}}}'.encode())))
        assert failing(lambda url=server.url: call(adapter_of(variant, url))).error_class is G  # type: ignore[misc]


def test_nothing_is_sent_without_leave(variant: str, serve: Serve) -> None:
    server = serve(after_the_request(response(200)))

    def refuse() -> None:
        raise NotSent("fenced")

    with pytest.raises(NotSent, match="fenced"):
        call(adapter_of(variant, server.url), exchange=Exchange(PATIENCE, refuse))
    assert server.requests == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
def test_what_cannot_be_reached_was_not_sent(variant: str, url: str) -> None:
    asked = []
    exchange = Exchange(PATIENCE, lambda: asked.append(1))
    failure = failing(lambda: call(adapter_of(variant, url), exchange=exchange))
    assert failure.error_class is T and not exchange.sent_possible and asked == []


def test_a_reply_without_end_is_bounded(variant: str, serve: Serve) -> None:
    def flood(peer: Peer) -> None:
        peer.request()
        peer.send(OPEN_HEAD)
        while True:
            peer.send(b"data: " + b"x" * 65536)

    failure = failing(lambda: call(adapter_of(variant, serve(flood).url, max_reply_bytes=200_000)))
    assert failure.error_class is U


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("phase", ["headers", "body"])
def test_an_abort_ends_it_at_once(variant: str, serve: Serve, phase: str) -> None:
    server = serve(after_the_request(*([OPEN_HEAD, b": so far\n\n"] if phase == "body" else []), then=Peer.hang))
    exchange = Exchange(PATIENCE, lambda: None)
    aborted_at: list[float] = []

    def abort() -> None:
        server.reached.wait(PATIENCE)
        time.sleep(0.1)
        aborted_at.append(time.monotonic())
        exchange.abort("cancelled")

    thread = threading.Thread(target=abort)
    thread.start()
    failure = failing(lambda: call(adapter_of(variant, server.url, read_seconds=PATIENCE), exchange=exchange))
    ended_at = time.monotonic()
    thread.join()
    assert ended_at - aborted_at[0] < 1
    assert (failure.error_class, failure.code) == (U, "aborted_cancelled")


def test_the_environment_changes_neither_way_nor_key(
    variant: str, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    decoy = serve(after_the_request(response(200)))
    (tmp_path / ".netrc").write_text("default login somebody password else\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{decoy.port}")
    server = serve(after_the_request(response(401)))
    failing(lambda: call(adapter_of(variant, server.url)))
    (request,) = server.requests
    assert SECRET in (request.headers.get("authorization", "") + request.headers.get("x-api-key", ""))
    assert "Basic" not in request.headers.get("authorization", "")
    assert decoy.connections == 0


def test_who_can_be_asked_says_how_and_the_others_never_are(variant: str) -> None:
    ways = {
        "openai-chat stored": "key",
        "openai-responses background": "operation",
        "http deduplicated": "repeat",
    }
    adapter = adapter_of(variant, "http://127.0.0.1:9/v1")
    assert adapter.ask_by == ways.get(variant)
    if adapter.ask_by != "operation":
        assert adapter.cancel("x", exchange=Exchange(0.1, lambda: None)) is None
    assert issubclass(NothingFound, Exception)
