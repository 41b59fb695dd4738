"""When two requests are the same request: the key's syntax, the canonical form of a body, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
from decimal import Decimal
from typing import Any

# Raised when the canonical form changes, so that fingerprints of two releases are never taken for each other.
HASH_VERSION = 1
MOST_KEY_CHARACTERS = 255

# Visible ASCII but for the characters that separate or quote. A comma is what two header lines look like once a server
# has joined them, so that no key may hold one, quoted or not.
_BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")
_QUOTED = re.compile(r'"((?:[ !#-+\--\[\]-~]|\\["\\])*)"')
_ESCAPE = re.compile(r'\\(["\\])')
# A structured field's parameters. They are allowed and say nothing to us.
_PARAMETERS = re.compile(r'(?: *; *[a-z*][a-z0-9_.*-]*(?:=(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[!#-+\--:<-~]+))?)*')

_encode_text = json.JSONEncoder(ensure_ascii=False).encode


def parse_key(header: str) -> str:
    """The key in an Idempotency-Key header: `abc` and the structured-field string `"abc"` are the same key.

    Raises ValueError saying what is wrong.
    """
    text = header.strip(" \t")
    if text.startswith('"'):
        quoted = _QUOTED.match(text)
        if quoted is None or not _PARAMETERS.fullmatch(text, quoted.end()):
            raise ValueError("not a quoted string of visible ASCII characters and blanks without commas")
        key = _ESCAPE.sub(r"\1", quoted[1])
    elif _BARE.fullmatch(text):
        key = text
    else:
        raise ValueError("expected visible ASCII characters without blanks, quotes, commas, semicolons and backslashes")
    if not 1 <= len(key) <= MOST_KEY_CHARACTERS:
        raise ValueError(f"expected 1 to {MOST_KEY_CHARACTERS} characters")
    return key


def request_hash(body: Any) -> bytes:
    """The fingerprint of a request's body as received, before any default is filled in.

    The order of names, blanks and the spelling of numbers do not change it; the order of arrays, types and the Unicode
    form of strings do.
    """
    return bytes([HASH_VERSION]) + hashlib.sha256(canonical_json(body).encode()).digest()


def canonical_json(value: Any) -> str:
    """The one JSON text for a value: names sorted by code point, no blanks, numbers as exact plain decimals.

    Reading it gives the value back, so that it also serves to store a payload with nothing lost.
    """
    pieces: list[str] = []
    _write(value, pieces)
    return "".join(pieces)


def _write(value: Any, pieces: list[str]) -> None:
    # bool before int: True is an int to Python, and `true` is not `1` to JSON.
    if value is None or isinstance(value, bool):
        pieces.append("null" if value is None else "true" if value else "false")
    elif isinstance(value, str):
        pieces.append(_encode_text(value))
    elif isinstance(value, int):
        pieces.append(str(value))
    elif isinstance(value, Decimal):
        pieces.append(_plain(value))
    elif isinstance(value, dict):
        _write_object(value, pieces)
    elif isinstance(value, list):
        _write_array(value, pieces)
    else:
        raise TypeError(f"not a JSON value: {type(value).__name__}")


def _write_object(value: dict[str, Any], pieces: list[str]) -> None:
    mark = "{"
    for name in sorted(value):
        pieces += (mark, _encode_text(name), ":")
        _write(value[name], pieces)
        mark = ","
    pieces.append("}" if value else "{}")


def _write_array(value: list[Any], pieces: list[str]) -> None:
    mark = "["
    for item in value:
        pieces.append(mark)
        _write(item, pieces)
        mark = ","
    pieces.append("]" if value else "[]")


def _plain(number: Decimal) -> str:
    """All digits, no exponent, no trailing zeros: 1.0 and 1e0 are `1`, and so is no other number."""
    if number.is_zero():
        return "0"
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
