"""What may be repeated of a sentence that a provider wrote: it can hold our key, or a piece of the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MOST_CHARACTERS = 300
# So many characters in a row that also stand in the request are a quotation; fewer are chance.
_RUN_CHARACTERS = 12


def quotable(sentence: object, private: Iterable[str]) -> str:
    """The sentence, bounded and printable; empty if it is no text, or repeats one of the private texts in part."""
    if not isinstance(sentence, str):
        return ""
    printable = "".join(character if character.isprintable() else " " for character in sentence[:_MOST_CHARACTERS])
    # Compared without spaces, of which a provider may add or drop some.
    said = "".join(printable.split())
    return "" if any(_repeats(said, text) for text in private) else printable.strip()


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a part of a request, except the names of roles."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if name not in ("role", "type"):
                yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def _repeats(said: str, text: str) -> bool:
    compact = "".join(text.split())
    if len(compact) < _RUN_CHARACTERS:
        # A short text is looked for as a whole; a very short one is in every sentence.
        return len(compact) >= 4 and compact in said
    return any(said[at : at + _RUN_CHARACTERS] in compact for at in range(len(said) - _RUN_CHARACTERS + 1))
