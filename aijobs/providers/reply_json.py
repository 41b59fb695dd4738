"""Reading what a provider sent as JSON: tolerant of what is missing or odd, strict about what is not JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from aijobs.domain.failures import Usage

_MOST_TOKENS = 10**12
_IDENTIFIER_CHARACTERS = 200


def parse(text: str) -> Any:
    """The value. Raises ValueError for what is not JSON: NaN, Infinity and bottomless nesting included.

    Texts may hold lone surrogates, as half a character in a delta is: only together are they made fit to be stored.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_or_none(raw: bytes) -> Any:
    """The value of a body that is only looked at for hints; None when it is not JSON."""
    try:
        return parse(raw.decode("utf-8", "replace"))
    except ValueError:
        return None


def identifier(value: Any) -> str | None:
    """A short printable text from outside, or None."""
    return value[:_IDENTIFIER_CHARACTERS] if isinstance(value, str) and value.isprintable() and value else None


def said(message: Mapping[str, Any]) -> str:
    """The text of a delta or message: `content`, as a text or in parts, or a refusal, which is an answer as well.

    Raises ValueError when there is a content of another form: to go on without it would pass for an empty answer.
    """
    content = message.get("content")
    if content is None or content == "":
        content = message.get("refusal") or ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise ValueError("a content that is no text")  # noqa: TRY004 - the value is a stranger's, not a caller's
    return content


def usage(reported: Any) -> Usage | None:
    """The tokens of a chat completion's `usage`; None if it holds no number that makes sense."""
    if not isinstance(reported, dict):
        return None
    found = Usage(
        input_tokens=_tokens(reported.get("prompt_tokens")),
        output_tokens=_tokens(reported.get("completion_tokens")),
        cached_tokens=_tokens(_part(reported, "prompt_tokens_details").get("cached_tokens")),
        reasoning_tokens=_tokens(_part(reported, "completion_tokens_details").get("reasoning_tokens")),
        cache_write_tokens=_tokens(_part(reported, "prompt_tokens_details").get("cache_write_tokens")),
    )
    return None if found == Usage() else found


def any_usage(reported: Any) -> Usage:
    """The tokens of a `usage` in whichever of the known forms; an empty one if there is none.

    Anthropic's input tokens are those beside the cache's, which are added: a Usage counts all that was read.
    """
    chat = usage(reported)
    if chat is not None or not isinstance(reported, dict):
        return chat or Usage()
    cached = _tokens(reported.get("cache_read_input_tokens"))
    if cached is None:
        cached = _tokens(_part(reported, "input_tokens_details").get("cached_tokens"))
    beside = [reported.get(name) for name in ("cache_creation_input_tokens", "cache_read_input_tokens")]
    read = _tokens(reported.get("input_tokens"))
    return Usage(
        input_tokens=None if read is None else read + sum(_tokens(part) or 0 for part in beside),
        output_tokens=_tokens(reported.get("output_tokens")),
        cached_tokens=_tokens(_part(reported, "input_tokens_details").get("cached_tokens"))
        if cached is None
        else cached,
        reasoning_tokens=_tokens(_part(reported, "output_tokens_details").get("reasoning_tokens")),
        cache_write_tokens=_tokens(reported.get("cache_creation_input_tokens")),
    )


def _part(reported: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = reported.get(name)
    return part if isinstance(part, dict) else {}


def _tokens(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
