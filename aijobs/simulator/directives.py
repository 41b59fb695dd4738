"""The little language in which a request says what is to go wrong with it.

A script is `name=value` pairs between `[[sim:` and `]]` in the last user message, or the whole of an `X-Simulator`
header. A value is one word, or a JSON string in double quotes, or anything in single quotes. The header wins over the
message, and both over the defaults of the server.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aijobs.simulator.errors import ERRORS

_IN_PROMPT = re.compile(r"\[\[sim:(.*?)\]\]", re.DOTALL)
_PAIR = re.compile(r"""\s*([a-z_]+)=("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']\S*)(?=\s|$)""")

# An hour of silence and a hundred thousand deltas outlast every deadline and every test that means well.
_LONGEST_MS = 3_600_000.0
_MOST_DELTAS = 100_000
_LONGEST_MARKER = 512


class DirectiveError(ValueError):
    """A script that cannot be meant. The text names the directive and is sent back to the caller."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """What one request asked for. The README lists the meaning of each directive."""

    marker: str | None = None
    times: int | None = None
    tokens: int | None = None
    text: str | None = None
    delta_ms: float = 0.0
    first_byte_ms: float = 0.0
    framing: str = "chunked"
    paid: bool | None = None
    status: int | None = None
    error: str | None = None
    retry_after: str | None = None
    retry_after_ms: str | None = None
    should_retry: str | None = None
    usage: str = "on"
    done: bool = True
    cut_after: int | None = None
    reset_after: int | None = None
    hang_after: int | None = None
    error_after: int | None = None
    hang: str | None = None
    close: str | None = None
    reset: str | None = None
    malformed: str | None = None
    finish: str | None = None
    split_emoji: bool = False
    lone_surrogate: bool = False

    @property
    def breaks(self) -> tuple[int, str] | None:
        """After how many deltas the answer breaks off, and how (cut, reset, hang, error); the earliest if several."""
        asked = {"cut": self.cut_after, "reset": self.reset_after, "hang": self.hang_after, "error": self.error_after}
        return min(((after, how) for how, after in asked.items() if after is not None), default=None)


def _text(value: str) -> str:
    return value


def _marker(value: str) -> str:
    return value[:_LONGEST_MARKER]


def _header(value: str) -> str:
    # A line break in a header value would let a prompt write headers of its own.
    if not value.isascii() or not value.isprintable():
        raise ValueError("must be printable ASCII")
    return value


def _milliseconds(value: str) -> float:
    number = float(value)
    if not math.isfinite(number) or not 0 <= number <= _LONGEST_MS:
        raise ValueError(f"must be 0 to {_LONGEST_MS:.0f}")
    return number


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value)
        if not low <= number <= high:
            raise ValueError(f"must be {low} to {high}")
        return number

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return parse


def _switch(value: str) -> bool:
    if value in ("1", "on", "yes", "true"):
        return True
    if value in ("0", "off", "no", "false"):
        return False
    raise ValueError("must be on or off")


def _malformed(value: str) -> str:
    return "json" if value == "1" else _one_of("json", "status", "headers")(value)


_deltas = _whole(0, _MOST_DELTAS)
_headers = _one_of("headers")

# These say what the answer is when all goes well; they stay when `times` has used up the fault.
_SHAPE: dict[str, Callable[[str], Any]] = {
    "marker": _marker,
    "times": _whole(0, 1_000_000),
    "tokens": _deltas,
    "text": _text,
    "delta_ms": _milliseconds,
    "first_byte_ms": _milliseconds,
    "framing": _one_of("chunked", "close"),
}

_FAULTS: dict[str, Callable[[str], Any]] = {
    "paid": _switch,
    "status": _whole(200, 599),
    "error": _one_of(*ERRORS),
    "retry_after": _header,
    "retry_after_ms": _header,
    "should_retry": _one_of("true", "false"),
    "usage": _one_of("on", "off", "twice"),
    "done": _switch,
    "cut_after": _deltas,
    "reset_after": _deltas,
    "hang_after": _deltas,
    "error_after": _deltas,
    "hang": _headers,
    "close": _headers,
    "reset": _headers,
    "malformed": _malformed,
    "finish": _one_of("stop", "length", "content_filter", "tool_calls"),
    "split_emoji": _switch,
    "lone_surrogate": _switch,
}

_PARSERS = _SHAPE | _FAULTS

NAMES = tuple(_PARSERS)


def parse(script: str) -> dict[str, Any]:
    """The directives of one script by name. Raises DirectiveError for what is unknown, out of range or no pair."""
    values: dict[str, Any] = {}
    position, end = 0, len(script.rstrip())
    while position < end:
        pair = _PAIR.match(script, position)
        if pair is None:
            raise DirectiveError("a script is name=value pairs; a value with spaces goes in quotes")
        values[pair[1]] = _value(pair[1], pair[2])
        position = pair.end()
    return values


def _value(name: str, written: str) -> Any:
    if name not in _PARSERS:
        raise DirectiveError(f"unknown directive {name}; known are {', '.join(NAMES)}")
    try:
        return _PARSERS[name](_unquoted(written))
    except ValueError as error:
        raise DirectiveError(f"{name}: {error}") from None


def _unquoted(written: str) -> str:
    if written.startswith('"'):
        text: str = json.loads(written, strict=False)
        return text
    return written[1:-1] if written.startswith("'") else written


def in_prompt(prompt: str) -> dict[str, Any]:
    """The directives of all the scripts in a message, a later one over an earlier one. Raises DirectiveError."""
    values: dict[str, Any] = {}
    for script in _IN_PROMPT.findall(prompt):
        values |= parse(script)
    return values


def without_scripts(prompt: str) -> str:
    """The message as a person meant it."""
    return _IN_PROMPT.sub("", prompt).strip()


def has_fault(values: Mapping[str, Any]) -> bool:
    return any(name in _FAULTS for name in values)


def without_faults(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _FAULTS}
