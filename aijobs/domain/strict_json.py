"""Reading JSON that a stranger sent: what the standard forbids, or the database cannot store, is one error."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, NoReturn

# Far beyond any request that a person or program writes on purpose, and far below what strains a parser's stack.
MOST_DEPTH = 64
MOST_DIGITS = 1_000
MOST_EXPONENT = 400
# `1e400` is five characters that stand for four hundred. In one number that is harmless; a body full of them would
# become a document hundreds of times its size once it is written out.
MOST_EXPONENTS_TOGETHER = 1_000_000
# PostgreSQL stores neither; half of a surrogate pair is no character and cannot be sent as UTF-8 either.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class MalformedJson(ValueError):
    """The text is not JSON that we accept. The message says what is wrong and quotes none of it."""


def loads(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8. Numbers become int or, when written with a point or exponent, Decimal.

    Raises MalformedJson for anything else: another encoding, a byte order mark, NaN and Infinity, a name given twice in
    one object, a NUL or lone surrogate in a string, nesting deeper than MOST_DEPTH, numbers beyond MOST_DIGITS or
    MOST_EXPONENT.
    """
    numbers = _Numbers()
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=numbers.whole,
            parse_float=numbers.decimal,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError:
        raise MalformedJson("the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedJson(f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise MalformedJson(f"nested deeper than {MOST_DEPTH} levels") from None
    _check(value, 1)
    return value


class _Numbers:
    """Reads the numbers of one document."""

    def __init__(self) -> None:
        self._exponents = 0

    def whole(self, text: str) -> int:
        if len(text.lstrip("-")) > MOST_DIGITS:
            raise MalformedJson(f"a number of more than {MOST_DIGITS} digits")
        return int(text)

    def decimal(self, text: str) -> Decimal:
        digits, _, exponent = text.lower().partition("e")
        if len(digits) - digits.count("-") - digits.count(".") > MOST_DIGITS:
            raise MalformedJson(f"a number of more than {MOST_DIGITS} digits")
        # The length is looked at first, because int() of a very long text is an error of another kind.
        if len(exponent.lstrip("+-0")) > len(str(MOST_EXPONENT)) or abs(int(exponent or "0")) > MOST_EXPONENT:
            raise MalformedJson(f"a number with an exponent beyond {MOST_EXPONENT}")
        self._exponents += abs(int(exponent or "0"))
        if self._exponents > MOST_EXPONENTS_TOGETHER:
            raise MalformedJson("the numbers are too large together")
        return Decimal(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise MalformedJson("a name is given twice in one object")
    return made


def _no_constant(name: str) -> NoReturn:
    raise MalformedJson(f"{name} is not a JSON number")


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        if _UNSTORABLE.search(value):
            raise MalformedJson("a string holds a NUL or half of a surrogate pair")
    elif isinstance(value, dict | list):
        if depth > MOST_DEPTH:
            raise MalformedJson(f"nested deeper than {MOST_DEPTH} levels")
        if isinstance(value, dict):
            for name in value:
                _check(name, depth)
            value = value.values()
        for item in value:
            _check(item, depth + 1)
