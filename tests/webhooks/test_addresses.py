"""Which addresses a webhook may go to, as written, and as they are when the name is resolved."""

from __future__ import annotations

import socket
import threading
import time
from ipaddress import ip_network
from typing import Any

import pytest

from aijobs.domain.webhooks import PAUSES_SECONDS, fault_of, may_be_called, pause_after
from aijobs.providers import connections, resolver, transport, webhook_post
from tests.providers.wire import CERTIFICATE, Peer, Server
from tests.webhooks.receiver import Received, receiver

LOOPBACK = (ip_network("127.0.0.0/8"),)
SECRET = "whsec_" + "QUJD" * 8


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.9.9.9",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "100::1",
        "2001:db8::1",
        "2001::1",
        "2002:7f00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "nonsense",
        "::127.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "3fff::1",
        "4000::1",
    ],
)
def test_an_address_that_is_not_on_the_internet_is_refused(address: str) -> None:
    assert not may_be_called(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]
)
def test_an_address_on_the_internet_may_be_called(address: str) -> None:
    assert may_be_called(address)


def test_what_the_operator_allows_may_be_called() -> None:
    assert may_be_called("127.0.0.1", LOOPBACK) and may_be_called("::ffff:127.0.0.1", LOOPBACK)
    assert not may_be_called("10.0.0.1", LOOPBACK) and not may_be_called("::1", LOOPBACK)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://127.1/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://017700000001/",
        "https://[::1]/",
        "https://169.254.169.254/latest",
        "https://[fd00:ec2::254]/",
        "https://[::ffff:10.0.0.1]/",
        "http://example.com/",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://example.com/#part",
        "ftp://example.com/",
        "//example.com",
        "https:///",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://exämple.com/",
        "https://example.com\\@10.0.0.1/",
        "javascript:alert(1)",
        "https://10.0.0.1./",
        "https://localhost/",
        "https://LOCALHOST./",
        "https://a.localhost/",
        "http://localhost/",
        "https://example.com/#",
        "https://[64:ff9b::a00:1]/",
    ],
)
def test_a_url_that_cannot_be_right_is_refused_at_once(url: str) -> None:
    assert fault_of(url) is not None


def test_a_url_that_may_be_right_is_taken() -> None:
    for url in ("https://example.com/hook?x=1", "https://example.com:8443/", "https://1.1.1.1/", "https://a.b-c.dev"):
        assert fault_of(url) is None
    assert fault_of("http://127.0.0.1:8080/hook", LOOPBACK) is None
    assert fault_of("https://example.com/" + "x" * 2000) is not None
    assert fault_of("http://localhost/", LOOPBACK) is None and fault_of("https://localhost/", LOOPBACK) is None
    assert fault_of("http://example.com/", LOOPBACK) is not None


def test_tries_are_spaced_over_a_day() -> None:
    pauses = [pause_after(tries, 0.5) for tries in range(1, len(PAUSES_SECONDS) + 2)]
    assert pauses[:-1] == list(PAUSES_SECONDS) and pauses[-1] is None
    assert 12 * 3600 < sum(PAUSES_SECONDS) < 30 * 3600
    assert pause_after(1, 0.0, 600.0) == 600.0 and pause_after(6, 0.0, 1.0) == PAUSES_SECONDS[5] * 0.9


def resolving_to(monkeypatch: pytest.MonkeyPatch, *turns: list[str]) -> list[str]:
    """Have names resolve to other addresses at each look; what was looked up."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, port: Any, *arguments: Any) -> Any:
        if arguments and arguments[-1] == socket.AI_NUMERICHOST:
            return real(host, port, *arguments)
        addresses = turns[min(len(asked), len(turns) - 1)]
        asked.append(host)
        return [entry for address in addresses for entry in real(address, port, 0, socket.SOCK_STREAM)]

    monkeypatch.setattr(resolver.socket, "getaddrinfo", look_up)
    return asked


def post(url: str, **more: Any) -> webhook_post.Told:
    return webhook_post.post(url, webhook_id="w-1", body="{}", secrets=[SECRET], **{"allowed": LOOPBACK} | more)


def test_a_name_that_leads_to_a_private_address_is_refused_however_many_public_ones_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiver() as there:
        port = there.url.rpartition(":")[2]
        resolving_to(monkeypatch, ["1.1.1.1", "127.0.0.1"])
        assert post(f"http://rebound.example:{port}/", allowed=()).error == "address_refused"
        assert there.received == []


def test_the_connection_goes_to_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that changes between the look and the connection changes nothing: there is one look."""
    with receiver() as there:
        port = there.url.rpartition(":")[2]
        asked = resolving_to(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
        assert post(f"http://rebound.example:{port}/x").status == 204
        assert asked == ["rebound.example"]
        assert there.received[0].headers["host"] == f"rebound.example:{port}"


def test_redirects_proxies_and_the_environment_are_nothing_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with receiver(lambda _, __: (307, {"Location": "http://127.0.0.1:9/"})) as there:
        assert post(there.url + "/a").status == 307


def test_a_receiver_gets_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_post, "TOTAL_SECONDS", 0.6)

    def dawdle(_: Received, __: int) -> None:
        time.sleep(2)

    with receiver(dawdle) as there:
        started = time.monotonic()
        assert post(there.url + "/a").error == "no_answer"
        assert time.monotonic() - started < 1.8
    assert post("http://127.0.0.1:9/").error == "not_reached"
    assert post("https://127.0.0.1:9/").error == "not_reached"


def test_a_receiver_that_drips_gets_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_post, "TOTAL_SECONDS", 0.8)

    def drip(peer: Peer) -> None:
        peer.request()
        peer.connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not server.stopping.wait(0.05):
            peer.connection.sendall(b"x")

    server = Server(drip)
    try:
        started = time.monotonic()
        assert post(f"http://127.0.0.1:{server.port}/a").error == "no_answer"
        assert 0.5 < time.monotonic() - started < 2
    finally:
        server.stop()


def test_a_body_without_an_end_is_not_waited_for() -> None:
    def flood(peer: Peer) -> None:
        peer.request()
        peer.connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not server.stopping.is_set():
            peer.connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    server = Server(flood)
    try:
        started = time.monotonic()
        assert post(f"http://127.0.0.1:{server.port}/a").status == 200
        assert time.monotonic() - started < 2
    finally:
        server.stop()


def test_the_certificate_is_the_names_and_not_the_addresss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes to an address; what is asked for by SNI, and must be on the certificate, is the name."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setattr(transport, "_local", threading.local())
    connections.trusted.cache_clear()

    def answer(peer: Peer) -> None:
        peer.request()
        peer.connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    server = Server(answer, tls=True)
    try:
        asked = resolving_to(monkeypatch, ["127.0.0.1"])
        assert post(f"https://localhost:{server.port}/a").status == 204
        assert post(f"https://another.example:{server.port}/a").error == "certificate_refused"
        assert asked == ["localhost", "another.example"] and server.posts == 1
        assert server.requests[0].headers["host"] == f"localhost:{server.port}"
    finally:
        server.stop()
        connections.trusted.cache_clear()
