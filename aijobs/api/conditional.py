"""Entity tags, so that polling an unchanged job costs no body."""

from __future__ import annotations

import re

_LIST = re.compile(
    r'[ \t]*(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*")?[ \t]*(?:,[ \t]*(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*")?[ \t]*)*'
)
_TAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')


def etag_of(version: int) -> str:
    """The tag of a job's body: its version, which rises with each change that the body shows."""
    return f'"{version}"'


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether If-None-Match names the tag, or anything (`*`). Weak comparison; a malformed header matches nothing."""
    if if_none_match is None:
        return False
    if if_none_match.strip(" \t") == "*":
        return True
    return _LIST.fullmatch(if_none_match) is not None and etag in _TAG.findall(if_none_match)
