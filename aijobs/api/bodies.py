"""Reading a request's body: never more than the cap, whatever the headers say."""

from __future__ import annotations

from typing import Any

from flask import request
from gunicorn.http.errors import ParseException

from aijobs.api.problems import Problem
from aijobs.api.service import service
from aijobs.domain.strict_json import MalformedJson, loads

_PIECE_BYTES = 65_536


def json_document() -> Any:
    """The body's JSON value. Raises Problem: 415, 413, 408 or 400."""
    _check_media_type()
    raw = _read(request.environ, service().settings.max_body_bytes)
    try:
        return loads(raw)
    except MalformedJson as error:
        raise Problem("malformed_json", f"The body cannot be used: {error}.") from None


def _check_media_type() -> None:
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if request.mimetype != "application/json" or charset not in ("utf-8", "utf8"):
        raise Problem("unsupported_media_type", "Send the body as Content-Type: application/json, in UTF-8.")
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        refused = "Send the body without Content-Encoding."
        raise Problem("unsupported_media_type", refused, headers={"Accept-Encoding": "identity"})


def _read(environ: dict[str, Any], most_bytes: int) -> bytes:
    """The whole body, chunked or not, with our own cap: Werkzeug's would cut a chunked body short and say nothing."""
    declared = request.content_length
    if declared is not None and declared > most_bytes:
        _close_connection(environ)
        raise _too_large(most_bytes)
    if declared is None and not environ.get("wsgi.input_terminated"):
        return b""
    expected = most_bytes + 1 if declared is None else declared
    raw = _read_up_to(environ, expected)
    if len(raw) > most_bytes:
        _close_connection(environ)
        raise _too_large(most_bytes)
    if declared is not None and len(raw) < declared:
        _close_connection(environ)
        raise Problem("bad_request", "The body ended before its Content-Length.")
    return raw


def _read_up_to(environ: dict[str, Any], size: int) -> bytes:
    stream = environ["wsgi.input"]
    pieces: list[bytes] = []
    try:
        while size > 0 and (piece := stream.read(min(size, _PIECE_BYTES))):
            pieces.append(piece)
            size -= len(piece)
    except (BlockingIOError, TimeoutError):
        _close_connection(environ)
        raise Problem("request_timeout", "The body stopped arriving.", headers={"Connection": "close"}) from None
    except (OSError, ParseException):
        _close_connection(environ)
        raise Problem("bad_request", "The body's framing is broken.") from None
    return b"".join(pieces)


def _close_connection(environ: dict[str, Any]) -> None:
    """Have the connection closed after the answer: where the next request would begin is not known.

    gunicorn drops an application's `Connection: close`; gunicorn.conf.py gives the body this way to say it.
    """
    close = getattr(environ["wsgi.input"], "close_connection", None)
    if close is not None:
        close()


def _too_large(most_bytes: int) -> Problem:
    return Problem("payload_too_large", f"The body may have {most_bytes} bytes at most.")
