"""Finding a value in a provider's JSON by a dotted path, and making it fit to be stored."""

from __future__ import annotations

import math
from typing import Any

from aijobs.providers.reply_text import clean

# PostgreSQL takes far deeper values; nobody means them.
MOST_DEPTH = 100


def find(document: Any, path: str) -> Any:
    """The value at `a.b.0.c`: names of objects and places in lists. Raises LookupError where the path leads nowhere."""
    value = document
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise LookupError(name)
    return value


def storable(value: Any, depth: int = 0) -> Any:
    """The value without what PostgreSQL refuses in texts and names.

    Raises ValueError for one nested too deep, or with a number that is none once read.
    """
    if depth > MOST_DEPTH:
        raise ValueError(f"nested deeper than {MOST_DEPTH}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number beyond all bounds")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {clean(name): storable(item, depth + 1) for name, item in value.items()}
    return value
