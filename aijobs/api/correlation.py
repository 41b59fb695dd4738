"""Telling which request and which trace something belongs to."""

from __future__ import annotations

import re
import secrets

from flask import g, request

# A client's own id is echoed, logged and put into a URN: letters that mean nothing in any of these.
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def request_id() -> str:
    """The current request's id: the client's X-Request-Id if it is a sane one, else a new one."""
    if "request_id" not in g:
        given = request.headers.get("X-Request-Id", "")
        g.request_id = given if _SANE_ID.fullmatch(given) else secrets.token_hex(16)
    found: str = g.request_id
    return found


def trace_id() -> str:
    """The trace that a well-formed traceparent header names, else a new one. A malformed header is no error."""
    return _named_trace(request.headers.get("traceparent", "")) or secrets.token_hex(16)


def _named_trace(traceparent: str) -> str | None:
    found = _TRACEPARENT.fullmatch(traceparent.strip(" \t"))
    if found is None:
        return None
    version, trace, parent, more = found.groups()
    # Version 00 ends after the flags; later versions may go on, and ff is no version.
    if version == "ff" or (version == "00" and more) or not trace.strip("0") or not parent.strip("0"):
        return None
    return trace
