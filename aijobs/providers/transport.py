"""One request to a provider: no redirects, no retries, no proxies of the environment, everything bounded.

`send` sends and returns the reply's head; its body is read in pieces as they come. Every failure leaves as NotSent
(ended from outside before anything could have been received), as ReplyTooLarge, or as TransportFailure with the phase.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy

import requests
import urllib3
from urllib3.util import Retry, Timeout

from aijobs.errors import AijobsError, NotSent
from aijobs.providers.connections import LeaveRefused, TrackedAdapter, Underway, underway
from aijobs.providers.exchange import Exchange
from aijobs.providers.watchdog import watchdog

_PIECE_BYTES = 65536
_local = threading.local()
# How OpenSSL calls an answer that is not TLS: the name changed with its version 3.2.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})


class TransportFailure(AijobsError):
    """The exchange broke. Its phase says whether the request may have been received; `cause` is for people.

    `trust` says that TLS failed for good: the certificate does not verify, or the peer speaks no TLS. `proxy_denied`
    that the proxy wants other credentials.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause
        chain = list(_chain(cause))
        self.trust = any(_is_about_trust(link) for link in chain)
        self.proxy_denied = any("Tunnel connection failed: 407" in str(link) for link in chain)


class ReplyTooLarge(AijobsError):
    """The reply has more bytes than the provider's settings allow."""


class HttpReply:
    """A reply whose head has arrived. `pieces` yields the body, decoded, as it arrives."""

    def __init__(self, response: requests.Response, exchange: Exchange, max_bytes: int) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._raw: urllib3.BaseHTTPResponse = response.raw
        self._exchange = exchange
        self._max_bytes = max_bytes

    @property
    def framed(self) -> bool:
        """Whether the end of the body is marked, so that a cut one is told from a whole one."""
        transfer = self.headers.get("Transfer-Encoding", "").strip().lower()
        return transfer == "chunked" or (not transfer and self.headers.get("Content-Length", "").strip().isdecimal())

    def pieces(self) -> Iterator[bytes]:
        """The body. Raises TransportFailure, ReplyTooLarge."""
        received = 0
        while True:
            self._check()
            try:
                piece = self._raw.read1(_PIECE_BYTES, decode_content=True)
            except (OSError, urllib3.exceptions.HTTPError) as error:
                raise TransportFailure(error) from error
            if not piece:
                # An exchange ended from outside may look like a quiet end of the body. What came before is genuine.
                self._check()
                return
            received += len(piece)
            if received > self._max_bytes:
                raise ReplyTooLarge(f"more than {self._max_bytes} bytes")
            yield piece

    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces())

    def _check(self) -> None:
        if self._exchange.reason is not None:
            raise TransportFailure(ConnectionAbortedError(self._exchange.reason))


@contextmanager
def send(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None,
    exchange: Exchange,
    connect_seconds: float,
    read_seconds: float,
    max_reply_bytes: int,
    proxy: str | None = None,
) -> Iterator[HttpReply]:
    """Send one request and give its reply. Whatever happens inside, the connection is closed at the end.

    `read_seconds` bounds each wait for the other side, be it to send or to take bytes; `connect_seconds` those for an
    address, for TLS and for a proxy. Raises NotSent, TransportFailure, and what the exchange's `before_send` raises.
    """
    token = underway.set(Underway(exchange, read_seconds))
    response = None
    try:
        watchdog.watch(exchange)
        timeout = Timeout(connect=connect_seconds, read=read_seconds)
        response = _send(method, url, headers, body, timeout, proxy, exchange)
        yield HttpReply(response, exchange, max_reply_bytes)
    finally:
        watchdog.forget(exchange)
        if response is not None:
            response.close()
        exchange.detach()
        underway.reset(token)


def _send(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    timeout: Timeout,
    proxy: str | None,
    exchange: Exchange,
) -> requests.Response:
    refusal: Exception
    try:
        return _session().request(
            method,
            url,
            data=body,
            # A compressed stream that is cut ends without an error.
            headers={"Connection": "close", "Accept-Encoding": "identity", "User-Agent": "aijobs", **headers},
            timeout=timeout,  # type: ignore[arg-type]
            allow_redirects=False,
            stream=True,
            proxies={} if proxy is None else {"http": proxy, "https": proxy},
        )
    except LeaveRefused as refused:
        refusal = refused.error
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        if exchange.reason is not None and not exchange.sent_possible:
            raise NotSent(exchange.reason) from error
        raise TransportFailure(error) from error
    raise refusal


def _session() -> requests.Session:
    """This thread's session; never one that a fork has copied."""
    if getattr(_local, "pid", None) != os.getpid():
        session = requests.Session()
        # Else ~/.netrc would replace our Authorization, and the environment's proxies would see the prompts.
        session.trust_env = False
        # A cookie would tie one tenant's calls to another's.
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        # Behind a proxy, urllib3 repeats a POST whose answer was lost, unless every kind of retry is off.
        never = Retry(total=0, connect=0, read=0, redirect=0, status=0, other=0)
        for scheme in ("http://", "https://"):
            session.mount(scheme, TrackedAdapter(max_retries=never, pool_connections=4, pool_maxsize=4))
        _local.session, _local.pid = session, os.getpid()
    found: requests.Session = _local.session
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those it wraps: requests and urllib3 keep them as `reason`, as an argument, or as the cause."""
    link: BaseException | None = error
    while link is not None:
        yield link
        inner = [getattr(link, "reason", None), *link.args, link.__cause__]
        link = next((candidate for candidate in inner if isinstance(candidate, BaseException)), None)


def _is_about_trust(error: BaseException) -> bool:
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    return isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS
