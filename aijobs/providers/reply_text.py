"""Text as models really send it, made fit to be stored."""

from __future__ import annotations


class TextTooLarge(ValueError):
    """The text of a reply has more bytes than the provider's settings allow."""


class ReplyText:
    """Joins deltas. A character split over two deltas is put together; what no text may hold is replaced.

    A model's tokens may cut a surrogate pair in two, and each half alone can be stored nowhere. The bytes of a body do
    not bound those of its text: a wrong byte becomes the three of U+FFFD.
    """

    def __init__(self, max_bytes: int) -> None:
        self._parts: list[str] = []
        self._pending = ""
        self._max_bytes = max_bytes
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether there is any text yet."""
        return bool(self._parts or self._pending)

    @property
    def characters(self) -> int:
        """How much text there is so far."""
        return sum(map(len, self._parts))

    def add(self, delta: str) -> str:
        """Take a delta; what of it is ready to be shown. Raises TextTooLarge."""
        text = self._pending + delta
        self._pending = ""
        if text and "\ud800" <= text[-1] <= "\udbff":  # the first half of a pair: its second may come next
            text, self._pending = text[:-1], text[-1]
        return self._keep(text)

    def flush(self) -> str:
        """No delta follows: what was kept back until then."""
        pending, self._pending = self._pending, ""
        return self._keep(pending)

    def whole(self) -> str:
        return "".join(self._parts)

    def _keep(self, text: str) -> str:
        ready = clean(text)
        if ready:
            self._bytes += len(ready.encode())
            if self._bytes > self._max_bytes:
                raise TextTooLarge(f"more than {self._max_bytes} bytes of text")
            self._parts.append(ready)
        return ready


def clean(text: str) -> str:
    """The text with split pairs joined, lone halves replaced by U+FFFD and NULs dropped: PostgreSQL takes neither."""
    if text.isascii():
        return text.replace("\0", "")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "")
