"""The events of a job, each once and in order, over as many connections as it takes."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from aijobs.client.errors import StreamBroken, Unavailable, WaitTimeout
from aijobs.client.transport import Call, Stream, StreamCut, Transport, pause_seconds
from aijobs.clock import elapsed
from aijobs.sse import EventTooLarge, read_events

TERMINAL = frozenset({"job.succeeded", "job.failed", "job.cancelled"})
SNAPSHOT = "snapshot"
# A snapshot holds the whole job, and its result may hold as much as a provider's reply.
MAX_EVENT_CHARACTERS = 64 * 1024 * 1024
# How often in a row an event may be wrong before it is the stream that is. A proxy may garble one.
_MOST_FAULTS = 3
_ENVELOPE = frozenset({"seq", "job_id", "type", "created_at"})


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `seq` counts 1, 2, 3 ... per job; `data` is what is particular to its type (a delta's `text`).

    A `snapshot` stands for the events up to its `seq`, which are no longer kept: its `data` is the whole job.
    """

    seq: int
    type: str
    data: Mapping[str, Any] = field(repr=False)
    created_at: datetime | None

    @property
    def terminal(self) -> bool:
        """Whether it ends the job, unless an operator has it tried again."""
        return self.type in TERMINAL


class EventStream:
    """Iterates over a job's events. It may be left at any time; `position` is the last seq given, to go on after."""

    def __init__(self, transport: Transport, path: str, job_id: str, after: int, give_up_at: float) -> None:
        self._transport = transport
        self._path = path
        self._job_id = job_id
        self._give_up_at = give_up_at
        self._barren_since: float | None = None
        self._faults = 0
        self._ended = False
        self.position = after
        self._events: Generator[Event, None, None] = self._follow()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def go_on(self) -> None:
        """Iterate over what came after an end, once an operator has had the job tried again."""
        self._pause(0)
        self._events = self._follow()

    def close(self) -> None:
        """End the subscription. The job goes on."""
        self._events.close()

    def _follow(self) -> Generator[Event, None, None]:
        """Connect, and connect again after each cut, until the server has no more to say."""
        cuts = 0
        while True:
            begun_at = self.position
            if self._barren_since is None:
                self._barren_since = elapsed()
            stream = self._open()
            if stream is None:
                return
            try:
                yield from self._read(stream)
                if self._ended:
                    return
            except StreamCut:
                pass
            except EventTooLarge as error:
                raise StreamBroken(f"an event of job {self._job_id} cannot be read: {error}") from None
            finally:
                stream.close()
            if self.position > begun_at:
                cuts = 0
            self._pause(cuts)
            cuts += 1

    def _open(self) -> Stream | None:
        headers = {"Accept": "text/event-stream"}
        if self.position:
            headers["Last-Event-ID"] = str(self.position)
        try:
            stream = self._transport.open(Call("GET", self._path, headers=headers), give_up_at=self._give_up_at)
        except Unavailable:
            self._check_time()
            raise
        if stream is not None and stream.media_type != "text/event-stream":
            stream.close()
            raise StreamBroken("the answer is no event stream: is the URL right?")
        return stream

    def _read(self, stream: Stream) -> Iterator[Event]:
        """The events of one connection that are news. Sets `_ended` if the server closed it after the job's end."""
        alarm = self._alarm(stream)
        last: Event | None = None
        try:
            for sent in read_events(self._heard(stream), most_characters=MAX_EVENT_CHARACTERS):
                event = _event(sent.name, sent.data, sent.last_id)
                if event is not None and event.seq <= self.position:
                    continue
                if event is None or (event.seq != self.position + 1 and event.type != SNAPSHOT):
                    self._count_fault()
                    raise StreamCut("an event that cannot be next")
                self.position, self._faults, last = event.seq, 0, event
                yield event
                self._check_time()
        finally:
            if alarm is not None:
                alarm.cancel()
        # An operator's retry lets a job go on after an end, so that only the server's closing makes it the last one.
        self._ended = last is not None and last.terminal

    def _alarm(self, stream: Stream) -> threading.Timer | None:
        """Ends the reading when the time is over; between two events a read would wait for the next comment."""
        if math.isinf(self._give_up_at):
            return None
        alarm = threading.Timer(max(0.0, self._give_up_at - elapsed()), stream.interrupt)
        alarm.daemon = True
        alarm.start()
        return alarm

    def _heard(self, stream: Stream) -> Iterator[bytes]:
        """The pieces, noting that there is somebody there: a comment says as much as an event."""
        for piece in stream.pieces():
            self._barren_since = None
            yield piece
            self._check_time()

    def _count_fault(self) -> None:
        self._faults += 1
        if self._faults >= _MOST_FAULTS:
            raise StreamBroken(f"the events of job {self._job_id} after number {self.position} cannot be read")

    def _pause(self, cuts: int) -> None:
        """Before the next connection. Raises WaitTimeout, or Unavailable if for long none has brought anything."""
        self._check_time()
        pause = pause_seconds(cuts)
        barren_seconds = 0.0 if self._barren_since is None else elapsed() - self._barren_since
        if barren_seconds + pause > self._transport.retry_seconds:
            raise Unavailable(None, "no_answer", "The event stream breaks off again and again", retryable=True)
        time.sleep(min(pause, max(0.0, self._give_up_at - elapsed())))
        self._check_time()

    def _check_time(self) -> None:
        if elapsed() >= self._give_up_at:
            raise WaitTimeout(self._job_id, None)


def _event(name: str, data: str, last_id: str) -> Event | None:
    """An event from the wire; None if it cannot be one."""
    try:
        document = json.loads(data)
        if name == SNAPSHOT:
            return Event(int(last_id), SNAPSHOT, dict(document), None)
        return Event(
            seq=int(document["seq"]),
            type=str(document["type"]),
            data={name: value for name, value in document.items() if name not in _ENVELOPE},
            created_at=datetime.fromisoformat(document["created_at"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
