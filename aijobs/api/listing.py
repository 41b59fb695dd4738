"""The query of a list of jobs, and cursors into it."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl
from uuid import UUID

from flask import request

from aijobs.api.problems import Problem
from aijobs.domain.idempotency import canonical_json
from aijobs.domain.jobs import JobStatus, ListFilter

DEFAULT_LIMIT = 20
MOST_LIMIT = 100
MOST_FILTER_CHARACTERS = 512
_LIMIT = re.compile(r"[1-9][0-9]{0,2}")
_PLAIN_FILTERS = ("kind", "queue", "user_id")
_CURSOR_VERSION = b"\x01"
_MARK_BYTES = 12


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page of a tenant's jobs is wanted."""

    filters: ListFilter
    before: UUID | None
    limit: int


def refuse_query() -> None:
    """Raise Problem if the request has a query string, for addresses that take none: to ignore it would mislead."""
    if request.query_string:
        raise Problem("invalid_query", "No query parameters are known here.")


def only(name: str) -> str | None:
    """The value of the one query parameter that an address takes; None without. Raises Problem `invalid_query`."""
    given = _given()
    value = given.pop(name, None)
    if given:
        raise Problem("invalid_query", f"Only {name} is known here.")
    return value


def page_request(tenant_id: UUID) -> PageRequest:
    """The page that the query string asks for. Raises Problem `invalid_query`."""
    given = _given()
    limit = _limit(given.pop("limit", None))
    cursor = given.pop("cursor", None)
    filters = _filters(given)
    before = None if cursor is None else read_cursor(cursor, tenant_id, filters)
    return PageRequest(filters, before, limit)


def write_cursor(last: UUID, tenant_id: UUID, filters: ListFilter) -> str:
    """A cursor to what follows the job `last` in this list."""
    text = _CURSOR_VERSION + last.bytes + _mark(last, tenant_id, filters)
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def read_cursor(cursor: str, tenant_id: UUID, filters: ListFilter) -> UUID:
    """The id that the cursor stands for. Raises Problem for a cursor of another tenant, another list, or none at all.

    The mark is no secret: each page is the tenant's own whatever a cursor says. It catches mistakes.
    """
    refused = Problem("invalid_query", "The cursor does not belong to this list: start again without it.")
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise refused from None
    if len(text) != 1 + 16 + _MARK_BYTES or text[:1] != _CURSOR_VERSION:
        raise refused
    last = UUID(bytes=text[1:17])
    if not hmac.compare_digest(text[17:], _mark(last, tenant_id, filters)):
        raise refused
    return last


def _mark(last: UUID, tenant_id: UUID, filters: ListFilter) -> bytes:
    said = canonical_json([str(last), str(tenant_id), dataclasses.asdict(filters)])
    return hashlib.sha256(said.encode()).digest()[:_MARK_BYTES]


def _given() -> dict[str, str]:
    try:
        pairs = parse_qsl(request.query_string.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise Problem("invalid_query", "The query string is not UTF-8.") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise Problem("invalid_query", f"{_shown(name)} is given twice.")
        if not value or len(value) > MOST_FILTER_CHARACTERS or "\0" in name + value:
            raise Problem("invalid_query", f"{_shown(name)} needs a value of 1 to {MOST_FILTER_CHARACTERS} characters.")
        given[name] = value
    return given


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not _LIMIT.fullmatch(text) or int(text) > MOST_LIMIT:
        raise Problem("invalid_query", f"limit must be a whole number from 1 to {MOST_LIMIT}.")
    return int(text)


def _filters(given: Mapping[str, str]) -> ListFilter:
    metadata = {name.removeprefix("metadata."): value for name, value in given.items() if name.startswith("metadata.")}
    for name in given:
        if name not in (*_PLAIN_FILTERS, "status") and not (name.startswith("metadata.") and name != "metadata."):
            raise Problem("invalid_query", f"{_shown(name)} is not a known parameter.")
    status = given.get("status")
    if status is not None and status not in tuple(JobStatus):
        raise Problem("invalid_query", f"status must be one of: {', '.join(JobStatus)}.")
    return ListFilter(
        status=None if status is None else JobStatus(status),
        metadata=metadata or None,
        **{name: given.get(name) for name in _PLAIN_FILTERS},
    )


def _shown(name: str) -> str:
    return repr(name[:40])
