"""Requests to the API: bounded in time and size, and repeated where a repeat can do no harm."""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from aijobs import __version__
from aijobs.client.errors import ApiError, RateLimited, Unavailable, api_error
from aijobs.clock import elapsed
from aijobs.domain.backoff import backoff_seconds
from aijobs.retry_after import retry_after_seconds

# A reachable host accepts within this, a slow network included.
CONNECT_SECONDS = 5.0
# The server says something at least every 15 s. Three times that without a byte is a dead connection.
STREAM_SILENCE_SECONDS = 45.0
# No answer of the API comes near this: a result holds at most what a provider's reply may.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
BACKOFF_SECONDS = 0.5
BACKOFF_CAP_SECONDS = 5.0
_PIECE_BYTES = 65_536
# A request begun at the very end of a wait still gets a moment for its answer.
_LEAST_ANSWER_SECONDS = 1.0

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, the same at each repeat. `hold_seconds`: how long the server may hold it on purpose."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. `document` is None where there is no body (204, 304)."""

    status: int
    headers: Mapping[str, str]
    document: Any

    @property
    def retry_after_seconds(self) -> float | None:
        return retry_after_seconds(self.headers, datetime.now(UTC))


class StreamCut(Exception):
    """A stream ended otherwise than by the server's closing it. Never leaves the client."""


class Stream:
    """The body of an answer as it arrives. Close it."""

    def __init__(self, reply: requests.Response) -> None:
        self._reply = reply
        self.media_type = reply.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def pieces(self) -> Iterator[bytes]:
        """What has arrived, as soon as it has. Raises StreamCut."""
        try:
            while piece := self._reply.raw.read1(_PIECE_BYTES):
                yield piece
        except (HTTPError, OSError) as error:
            raise StreamCut(type(error).__name__) from None

    def interrupt(self) -> None:
        """End the reading, from another thread. A stream that has ended already is left as it is."""
        # urllib3 refuses with one of these when the connection has been given back.
        try:
            self._reply.raw.shutdown()
        except (ValueError, RuntimeError, OSError, AttributeError):
            return

    def close(self) -> None:
        self._reply.close()


class Transport:
    """Sends to one API with one key. Threads may share it: each gets a session of its own, and so does each process
    after a fork, because two must never read from one connection."""

    def __init__(self, url: str, api_key: str | None, *, timeout_seconds: float, retry_seconds: float) -> None:
        self._base = _checked_url(url)
        self._auth = _Bearer(_checked_key(api_key))
        self._timeout_seconds = timeout_seconds
        self.retry_seconds = retry_seconds
        self._local = threading.local()
        # Weak, so that the session of a thread that has ended goes with it.
        self._sessions: weakref.WeakSet[requests.Session] = weakref.WeakSet()
        self._closed = False

    def send(self, call: Call, *, give_up_at: float = math.inf) -> Answer:
        """The answer to a call, repeated while there is none.

        `give_up_at` (as `elapsed` counts) bounds it beside `retry_seconds`. Raises ApiError.
        """
        return self._repeat(lambda: self._answer(call, give_up_at), give_up_at)

    def open(self, call: Call, *, give_up_at: float = math.inf) -> Stream | None:
        """The stream that a call opens; None if the server says that nothing is to come (204). Raises ApiError."""
        return self._repeat(lambda: self._opened(call, give_up_at), give_up_at)

    def close(self) -> None:
        self._closed = True
        for session in list(self._sessions):
            session.close()

    def _repeat(self, attempt: Callable[[], _T], give_up_at: float) -> _T:
        give_up_at = min(give_up_at, elapsed() + self.retry_seconds)
        repeats = 0
        while True:
            try:
                return attempt()
            except (Unavailable, RateLimited) as error:
                pause = pause_seconds(repeats, error.retry_after_seconds)
                if not error.retryable or elapsed() + pause >= give_up_at:
                    raise
            time.sleep(pause)
            repeats += 1

    def _answer(self, call: Call, give_up_at: float) -> Answer:
        answer_seconds = self._timeout_seconds + call.hold_seconds
        read_until = elapsed() + answer_seconds
        with self._exchange(call, answer_seconds, give_up_at) as reply:
            raw = _body(reply, read_until)
        if reply.status_code in (204, 304):
            return Answer(reply.status_code, reply.headers, None)
        return Answer(reply.status_code, reply.headers, _document(reply, raw))

    def _opened(self, call: Call, give_up_at: float) -> Stream | None:
        reply = self._exchange(call, STREAM_SILENCE_SECONDS, give_up_at)
        if reply.status_code == 204:
            reply.close()
            return None
        return Stream(reply)

    def _exchange(self, call: Call, answer_seconds: float, give_up_at: float) -> requests.Response:
        """One request, and its answer up to the body. Raises ApiError for any that is no success."""
        left = max(_LEAST_ANSWER_SECONDS, give_up_at - elapsed())
        try:
            reply = self._session().request(
                call.method,
                self._base + call.path,
                params=call.query or None,
                data=call.body,
                headers=call.headers,
                timeout=(min(CONNECT_SECONDS, left), min(answer_seconds, left)),
                # A redirect would make a GET of a POST, and take the key to who knows where.
                allow_redirects=False,
                stream=True,
            )
        except requests.RequestException as error:
            # Not chained: what requests attaches holds the headers and the body.
            raise _no_answer(error) from None
        if reply.status_code in (200, 202, 204, 304):
            return reply
        with reply:
            raise _refusal(reply, elapsed() + self._timeout_seconds)

    def _session(self) -> requests.Session:
        if self._closed:
            raise RuntimeError("this client is closed")
        if getattr(self._local, "pid", None) != os.getpid():
            session = requests.Session()
            session.mount("http://", _Adapter())
            session.mount("https://", _Adapter())
            # Given even without a key, because requests would else take one from ~/.netrc.
            session.auth = self._auth
            # No compression: an event would wait in the compressor, and read1 would bring half a block.
            session.headers.update({"User-Agent": f"aijobs/{__version__}", "Accept-Encoding": "identity"})
            self._local.session, self._local.pid = session, os.getpid()
            self._sessions.add(session)
        mine: requests.Session = self._local.session
        return mine


def pause_seconds(repeats: int, wished_seconds: float | None = None) -> float:
    """How long to wait before a repeat: what the server wishes and a little, else ever longer, with jitter."""
    return backoff_seconds(
        repeats=repeats,
        base_seconds=BACKOFF_SECONDS,
        cap_seconds=BACKOFF_CAP_SECONDS,
        jitter=random.random(),
        at_least_seconds=wished_seconds,
    )


class _Adapter(HTTPAdapter):
    """Closes its idle connections when it is told to; as it comes, that is left to the garbage collector."""

    def close(self) -> None:
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - it has keys() and cannot be iterated over
                manager.pools[key].close()
        super().close()


class _Bearer(AuthBase):
    def __init__(self, key: str | None) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key is not None:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL of the API must begin with http:// or https:// and name a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the URL of the API must hold no user, password, query or fragment: the key goes into api_key")
    return url.rstrip("/")


def _checked_key(key: str | None) -> str | None:
    key = (key or "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("the API key holds a character that no key has")
    return key or None


def _body(reply: requests.Response, read_until: float) -> bytes:
    """The whole body. The read timeout bounds the wait for each piece; `read_until` bounds all of them together."""
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := reply.raw.read1(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise ApiError(reply.status_code, "answer_too_large", f"The answer exceeds {MAX_ANSWER_BYTES} bytes")
            if elapsed() > read_until:
                raise _lost("it did not end in time")
    except (HTTPError, OSError) as error:
        raise _lost(type(error).__name__) from None
    return b"".join(pieces)


def _document(reply: requests.Response, raw: bytes) -> Any:
    try:
        document = json.loads(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        title = "The answer is not the API's: is the URL right?"
        raise ApiError(reply.status_code, "not_an_answer", title, request_id=reply.headers.get("X-Request-Id"))
    return document


def _refusal(reply: requests.Response, read_until: float) -> ApiError:
    problem: Any = None
    try:
        raw = _body(reply, read_until)
        if "json" in reply.headers.get("Content-Type", ""):
            problem = json.loads(raw)
    except (ApiError, ValueError):
        problem = None  # its status says enough
    return api_error(
        reply.status_code,
        reply.reason or "",
        problem,
        request_id=reply.headers.get("X-Request-Id"),
        retry_after_seconds=retry_after_seconds(reply.headers, datetime.now(UTC)),
    )


def _no_answer(error: requests.RequestException) -> Unavailable:
    # A bad certificate, or an address that is none, will be the same the next time.
    passing = isinstance(error, requests.ConnectionError | requests.Timeout) and not isinstance(
        error, requests.exceptions.SSLError
    )
    return Unavailable(None, "no_answer", f"The API could not be asked ({type(error).__name__})", retryable=passing)


def _lost(why: str) -> Unavailable:
    return Unavailable(None, "no_answer", f"The API's answer was lost ({why})", retryable=True)
