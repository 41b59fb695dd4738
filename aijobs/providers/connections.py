"""urllib3 connections that tell an exchange where it stands.

They rely on urllib3's internals, so that its version is bounded in pyproject.toml.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError
from urllib3.poolmanager import PoolManager
from urllib3.util.ssl_ import create_urllib3_context

from aijobs.providers.exchange import AddressRefused, Exchange
from aijobs.providers.resolver import resolve

# What urllib3, requests or we would take for a broken connection, though it comes from the leave to send.
_MISTAKABLE = (OSError, HTTPException, HTTPError, ValueError)


@dataclass(frozen=True, slots=True)
class Underway:
    """The call a thread is making: its exchange, and for how long a write may make no progress."""

    exchange: Exchange
    write_seconds: float


# There is no way to hand it through requests and urllib3 to a connection.
underway: contextvars.ContextVar[Underway] = contextvars.ContextVar("underway")


class LeaveRefused(Exception):
    """Carries an error of the leave to send past urllib3, which would swallow or rename it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class _Tracked:
    """Reports phases to the current exchange. Mixed in before urllib3's own connection classes."""

    timeout: Any

    def _new_conn(self: Any) -> socket.socket:
        try:
            return _dial(underway.get().exchange, self)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"connecting to {self.host} timed out") from error
        except OSError as error:
            raise NewConnectionError(self, f"connecting failed: {error}") from error

    def connect(self: Any) -> None:
        """TCP, the proxy's CONNECT and TLS: all before a byte of the request."""
        super().connect()  # type: ignore[misc]
        underway.get().exchange.connected()

    def request(self: Any, *arguments: Any, **options: Any) -> None:
        call = underway.get()
        if self.sock is None:
            self.connect()
        try:
            call.exchange.about_to_send()
        except _MISTAKABLE as error:
            raise LeaveRefused(error) from error
        # urllib3 would give a write no more than the connect timeout.
        self.timeout = call.write_seconds
        # When the kernel does not take every byte this raises, and the provider holds less than was announced.
        # urllib3 swallows some of these errors further out and lets the reply tell, so the phase must be kept here.
        super().request(*arguments, **options)  # type: ignore[misc]
        call.exchange.phase = "sent"

    def getresponse(self: Any) -> Any:
        response = super().getresponse()  # type: ignore[misc]
        underway.get().exchange.got_headers()
        return response


def _dial(exchange: Exchange, connection: Any) -> socket.socket:
    seconds = float(connection.timeout)
    addresses = resolve(exchange, connection._dns_host.strip("[]"), connection.port, seconds)
    if exchange.admit is not None:
        try:
            exchange.admit([str(address[0]) for *_, address in addresses])
        except AddressRefused as refused:
            raise LeaveRefused(refused) from refused
    exchange.phase = "connecting"
    problem: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        try:
            candidate = socket.socket(family, kind, protocol)
            return _connected(exchange, candidate, address, connection.socket_options or (), seconds)
        except OSError as error:
            problem = error
    raise problem or OSError("the host has no address")


def _connected(
    exchange: Exchange, candidate: socket.socket, address: Any, options: Iterable[Any], seconds: float
) -> socket.socket:
    """The candidate, connected to the address; closed if that fails."""
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(candidate.close)
        for option in options:
            candidate.setsockopt(*option)
        exchange.dial(candidate, address, seconds)
        candidate.settimeout(seconds)
        on_failure.pop_all()
    return candidate


class _TrackedHTTP(_Tracked, HTTPConnection):
    pass


class _TrackedHTTPS(_Tracked, HTTPSConnection):
    pass


class _UsedOnce:
    """Keeps no connection: a server may ignore `Connection: close`, and close one just as the next request leaves."""

    def _put_conn(self: Any, conn: Any) -> None:
        if conn is not None:
            conn.close()
        super()._put_conn(None)  # type: ignore[misc]


class _PoolHTTP(_UsedOnce, HTTPConnectionPool):
    ConnectionCls = _TrackedHTTP


class _PoolHTTPS(_UsedOnce, HTTPSConnectionPool):
    ConnectionCls = _TrackedHTTPS


_POOLS = {"http": _PoolHTTP, "https": _PoolHTTPS}


@functools.cache
def trusted() -> ssl.SSLContext:
    """Whom we trust: the authorities that come with requests, and those of this machine, for a company's own providers.

    Made once: reading the authorities anew for each connection costs tens of milliseconds.
    """
    context = create_urllib3_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    context.load_default_certs()
    return context


class TrackedAdapter(HTTPAdapter):
    """The transport adapter that makes a requests session use our connections, through proxies as well."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, ssl_context=trusted())
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: Any, **options: Any) -> PoolManager:
        contexts = {"ssl_context": trusted(), "proxy_ssl_context": trusted()}
        manager: PoolManager = super().proxy_manager_for(proxy, **contexts, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def cert_verify(self, conn: Any, *_: Any) -> None:
        """Always verify, by the context above: requests would have its own authorities read for each connection."""
        conn.cert_reqs = "CERT_REQUIRED"
