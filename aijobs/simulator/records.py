"""What the simulator was asked and what it would have been paid for: that never holds a prompt or an answer.

And, apart from it, the answers that a client asked to be stored.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
# At about 400 bytes a record this is 40 MB: enough for the longest load test, and bounded.
_MOST_RECORDS = 100_000
# What a provider stores for a month: the last answers that a test, or a job that asks late, can come back for.
_MOST_KEPT = 10_000


@dataclass(slots=True, eq=False)
class Record:
    """One complete POST, from its last byte to the end of its answer."""

    marker: str | None
    client_request_id: str | None
    received_at: str
    stream: bool = False
    generation: bool = False
    """Whether it counts as paid: the work was begun, or its answer leaves that open."""
    status: int | None = None
    tokens_sent: int = 0
    completed: bool = False
    """Whether a whole answer was written: not a refusal, not one that was cut."""
    peer_closed_at: str | None = None
    """When the peer closed its socket, if that was before the end."""
    finished_at: str | None = None


@dataclass(slots=True)
class _Tally:
    posts: int = 0
    generations: int = 0


class Records:
    """The last records, and totals since the start or the last reset. Safe to use from any thread."""

    def __init__(self, most: int = _MOST_RECORDS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        with self._lock:
            self._kept: deque[Record] = deque(maxlen=self._most)
            self._totals = dict.fromkeys(("requests", "complete_posts", "generations", "completed", "peer_closed"), 0)
            self._by_marker: OrderedDict[str, _Tally] = OrderedDict()
            self._turns: OrderedDict[object, int] = OrderedDict()
            # What was open at a reset is forgotten with the rest, and must not count when it ends.
            self._open: set[Record] = set()

    def request(self) -> None:
        """A request has begun; whether all of it arrives is not known yet."""
        with self._lock:
            self._totals["requests"] += 1

    def post(self, client_request_id: str | None) -> Record:
        """A POST has arrived as a whole."""
        record = Record(client_request_id, client_request_id, now())
        with self._lock:
            self._totals["complete_posts"] += 1
            self._kept.append(record)
            self._open.add(record)
        return record

    def decide(self, record: Record, *, generation: bool) -> None:
        """The record's marker is final, and so is whether its work counts as paid."""
        with self._lock:
            record.generation = generation
            if record not in self._open:
                return
            self._totals["generations"] += generation
            if record.marker is not None:
                tally = self._tally(record.marker)
                tally.posts += 1
                tally.generations += generation

    def finish(self, record: Record, *, completed: bool, peer_closed_at: str | None) -> None:
        """The answer has ended, whole or not."""
        with self._lock:
            record.completed, record.peer_closed_at, record.finished_at = completed, peer_closed_at, now()
            if record in self._open:
                self._open.remove(record)
                self._totals["completed"] += completed
                self._totals["peer_closed"] += peer_closed_at is not None

    def turn(self, key: object) -> int:
        """How often this key was seen before now, counting on."""
        with self._lock:
            seen = self._turns.pop(key, 0)
            self._turns[key] = seen + 1
            if len(self._turns) > self._most:
                self._turns.popitem(last=False)
            return seen

    def stats(self) -> dict[str, Any]:
        with self._lock:
            markers = {marker: asdict(tally) for marker, tally in self._by_marker.items()}
            sizes = {"open": len(self._open), "records": len(self._kept)}
            return {**self._totals, **sizes, "by_marker": markers}

    def calls(self, marker: str | None = None) -> list[dict[str, Any]]:
        """The kept records, oldest first: all, or those of one marker."""
        with self._lock:
            return [asdict(record) for record in self._kept if marker is None or record.marker == marker]

    def _tally(self, marker: str) -> _Tally:
        tally = self._by_marker.setdefault(marker, _Tally())
        self._by_marker.move_to_end(marker)
        if len(self._by_marker) > self._most:
            self._by_marker.popitem(last=False)
        return tally


class Kept(Generic[_Item]):
    """What a client asked to be stored, by id: the last of it. To be used from the event loop only."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._items: OrderedDict[str, _Item] = OrderedDict()

    def put(self, name: str, item: _Item) -> None:
        self._items[name] = item
        if len(self._items) > self._most:
            self._items.popitem(last=False)

    def get(self, name: str) -> _Item | None:
        return self._items.get(name)

    def all(self) -> list[_Item]:
        """Oldest first."""
        return list(self._items.values())


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
