"""Reading Server-Sent Events from a byte stream cut anywhere."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aijobs.errors import AijobsError

# No event of a provider comes near this; a line without an end must not fill the memory. Who awaits more says so.
MAX_EVENT_CHARACTERS = 4 * 1024 * 1024


class EventTooLarge(AijobsError):
    """One event is larger than the reader allows."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event: its type (`message` when unnamed), its data, lines joined, and the last id seen so far."""

    name: str
    data: str
    last_id: str = ""


def read_events(pieces: Iterable[bytes], *, most_characters: int = MAX_EVENT_CHARACTERS) -> Iterator[ServerEvent]:
    """The events of a stream, as the WHATWG defines them. An event that the stream's end cuts off is dropped.

    Raises EventTooLarge for one of more than `most_characters`.
    """
    name, last_id, size = "", "", 0
    data: list[str] = []
    for line in _lines(pieces, most_characters):
        if line == "":
            if data:
                yield ServerEvent(name or "message", "\n".join(data), last_id)
            name, data, size = "", [], 0
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
        elif field == "data":
            data.append(value)
            size += len(value) + 1
            if size > most_characters:
                raise EventTooLarge(f"more than {most_characters} characters")


def _lines(pieces: Iterable[bytes], most_characters: int) -> Iterator[str]:
    """Lines ended by LF, CR or CRLF. A CR at the end of one piece and an LF at the start of the next are one ending."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    rest, after_cr = "", False
    for piece in pieces:
        text = decoder.decode(piece)
        if after_cr and text:
            text = text.removeprefix("\n")
            after_cr = False
        if not text:
            continue
        # Only the new text is searched for line ends, so that a long line costs no more than its length.
        *ended, last = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        after_cr = text.endswith("\r")
        for line in ended:
            yield rest + line
            rest = ""
        rest += last
        if len(rest) > most_characters:
            raise EventTooLarge(f"a line of more than {most_characters} characters")
