"""The text of a job while it is written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aijobs.client.errors import JobCancelled, JobFailed
from aijobs.client.events import SNAPSHOT, Event, EventStream
from aijobs.client.jobs import Job

if TYPE_CHECKING:
    from aijobs.client.client import Client


@dataclass(frozen=True, slots=True)
class Reset:
    """Comes between two pieces where the text starts over: what was shown so far is to be taken back.

    An attempt that broke off had written something, and another attempt writes anew.
    """


class TextStream:
    """Iterates over the pieces of a job's text as they come: strings, and a Reset where the text starts over.

    `text` is the text so far, at the end that of the result; `job` is the job once it has ended. Where it has not
    succeeded, the end raises JobFailed or JobCancelled.
    """

    def __init__(
        self, client: Client, job_id: str, events: EventStream, on_event: Callable[[Event], None] | None
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._events = events
        self._on_event = on_event or _ignore
        self._so_far: list[str] = []
        self._trimmed = False
        self._last_end: str | None = None
        self.job: Job | None = None
        self._pieces = self._read()

    @property
    def text(self) -> str:
        return "".join(self._so_far)

    def __iter__(self) -> Iterator[str | Reset]:
        return self._pieces

    def __next__(self) -> str | Reset:
        return next(self._pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading. The job goes on."""
        self._pieces.close()
        self._events.close()

    def _read(self) -> Generator[str | Reset, None, None]:
        while True:
            yield from self._read_events()
            job = self._client.get(self._job_id)
            if job.ended and self._last_end in (None, f"job.{job.status}"):
                break
            # An operator has had the job tried again after the end that was streamed.
            self._last_end = None
            self._events.go_on()
        self.job = job
        # Of a text whose beginning is no longer kept only the end was streamed.
        if self._trimmed and job.text is not None and job.text != self.text:
            yield from self._start_over()
            self._so_far.append(job.text)
            yield job.text
        raise_unless_succeeded(job)

    def _read_events(self) -> Iterator[str | Reset]:
        for event in self._events:
            self._on_event(event)
            self._last_end = event.type if event.terminal else None
            if event.type == "job.output.delta":
                piece = str(event.data.get("text", ""))
                self._so_far.append(piece)
                yield piece
            elif event.type in ("job.output.reset", SNAPSHOT):
                self._trimmed = event.type == SNAPSHOT
                yield from self._start_over()

    def _start_over(self) -> Iterator[Reset]:
        if self._so_far:
            self._so_far.clear()
            yield Reset()


def raise_unless_succeeded(job: Job) -> None:
    """Raise JobFailed or JobCancelled for a job that ended so."""
    if job.status == "failed":
        raise JobFailed(job)
    if job.status == "cancelled":
        raise JobCancelled(job)


def _ignore(event: Event) -> None:
    return None
