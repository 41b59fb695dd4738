"""The prompt and the key go where the configuration says, and nowhere else, whatever the environment or the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aijobs.errors import ConfigError, ProviderError
from tests.providers.conftest import Client
from tests.providers.test_faults_after_the_request_is_sent import DELTA, DONE, FINISH, script
from tests.providers.wire import CHUNKED_HEAD, Peer, Proxy, Server, chunked, response

Serve = Callable[..., Server]


@pytest.fixture
def decoy() -> Iterator[Server]:
    server = Server(Peer.hang)
    yield server
    server.stop()


def test_netrc_and_proxy_variables_are_not_looked_at(
    client: Client, serve: Serve, decoy: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login them password theirs\ndefault login them password theirs\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{decoy.port}")
        monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{decoy.port}")
    monkeypatch.setenv("NO_PROXY", "")
    server = serve(script(CHUNKED_HEAD, chunked(DELTA, FINISH, DONE)))
    assert client.call(server.url).text == "Hi"
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret-of-ours"
    assert client.call(server.url, api_key=None).text == "Hi"
    assert "authorization" not in server.requests[1].headers
    assert decoy.connections == 0


def test_no_proxy_variable_turns_off_the_configured_proxy(
    client: Client, serve: Serve, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    server = serve(script(CHUNKED_HEAD, chunked(DELTA, FINISH, DONE)))
    assert client.call(server.url, proxy=proxy.url).text == "Hi"
    assert len(proxy.lines) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int, client: Client, serve: Serve, decoy: Server) -> None:
    server = serve(script(response(status, b"", f"Location: {decoy.url}/chat/completions")))
    with pytest.raises(ProviderError) as caught:
        client.call(server.url)
    assert caught.value.failure.code == "provider_redirect"
    assert (server.posts, server.connections, decoy.connections) == (1, 1, 0)


@pytest.mark.usefixtures("trusted")
def test_a_redirect_out_of_tls_is_not_followed(client: Client, serve: Serve, decoy: Server) -> None:
    server = serve(script(response(307, b"", f"Location: {decoy.url}/chat/completions")), tls=True)
    with pytest.raises(ProviderError):
        client.call(server.url)
    assert (server.posts, decoy.connections) == (1, 0)


def test_cookies_are_not_kept_for_the_next_call(client: Client, serve: Serve) -> None:
    server = serve(script(response(429, b"", "Set-Cookie: session=of-another-tenant; Path=/")))
    for _ in range(2):
        with pytest.raises(ProviderError):
            client.call(server.url)
    assert "cookie" not in server.requests[1].headers


@pytest.mark.parametrize("key", ["sk\nX-Evil: 1", "sk-\u20ac", "sk key", ""])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str, client: Client) -> None:
    with pytest.raises(ConfigError) as caught:
        client.call("http://127.0.0.1:1/v1", api_key=key)
    assert "Evil" not in str(caught.value)


def test_any_step_name_fits_the_request_id(client: Client, serve: Serve) -> None:
    server = serve(script(response(400)))
    with pytest.raises(ProviderError):
        client.call(server.url, request_id="job.1.\u00fcber\r\nX-Evil: 1" + "x" * 1000)
    headers = server.requests[0].headers
    assert headers["x-client-request-id"].startswith("job.1._ber__X-Evil:_1xxx")
    assert len(headers["x-client-request-id"]) == 512
