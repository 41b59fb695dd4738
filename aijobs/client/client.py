"""The client: one method for each thing that can be asked of the API."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import UUID

from aijobs.client.errors import ApiError, ClientError
from aijobs.client.events import Event, EventStream
from aijobs.client.jobs import Job, new_key
from aijobs.client.text import TextStream, raise_unless_succeeded
from aijobs.client.transport import Answer, Call, Transport
from aijobs.client.waiting import Look, wait_for_end
from aijobs.clock import elapsed
from aijobs.config import ClientSettings
from aijobs.domain.idempotency import parse_key

JOBS = "/api/ai/jobs"
# For an answer that the server does not hold back on purpose.
TIMEOUT_SECONDS = 30.0
# Long enough for a deploy or a failover of the database, short enough for somebody who waits.
RETRY_SECONDS = 60.0
# The server caps what it holds a request for.
MOST_WAIT_SECONDS = 60
_PAGE = 100

JobId = str | UUID


class Client:
    """Speaks to one API with one key. Use it as a context manager, or close it.

    `url` and `api_key` default to AIJOBS_URL and AIJOBS_API_KEY; no key at all is for a server in open mode.
    `timeout_seconds` bounds one request. A request that was not answered, or answered with 429 or 503, is repeated for
    `retry_seconds` at most (0: never), as far apart as the server wishes; all of them are safe to repeat.

    Threads may share a client; so may processes after a fork. An event stream belongs to the thread that reads it.
    What goes wrong is a ClientError. A ValueError or TypeError is a mistake in the call itself: nothing was sent.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        defaults = ClientSettings.from_env()
        self.url = defaults.url if url is None else url
        self._transport = Transport(
            self.url,
            defaults.api_key if api_key is None else api_key,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def close(self) -> None:
        self._transport.close()

    def create(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        run_at: datetime | str | None = None,
        expires_at: datetime | str | None = None,
        max_attempts: int | None = None,
        user_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        webhook_url: str | None = None,
        wait: float | None = None,
    ) -> Job:
        """Create a job, once, however often it has to be sent. What is None is left to the server's defaults.

        Without a key of yours one is made and kept over all repeats; the Job has it, and so has an error, with which
        the same create may be sent again later. `wait` asks for the answer at the job's end, or after that many
        seconds (60 at most) as it then stands.
        """
        key = new_key() if idempotency_key is None else parse_key(idempotency_key)
        fields = {
            "kind": kind,
            "payload": dict(payload),
            "queue": queue,
            "priority": priority,
            "run_at": _moment("run_at", run_at),
            "expires_at": _moment("expires_at", expires_at),
            "max_attempts": max_attempts,
            "user_id": user_id,
            "metadata": None if metadata is None else dict(metadata),
            "webhook_url": webhook_url,
        }
        # Written once, so that each repeat is the same request to the last byte.
        body = json.dumps({name: value for name, value in fields.items() if value is not None}, allow_nan=False)
        hold_seconds = 0 if wait is None else _whole_seconds(wait)
        headers = {"Content-Type": "application/json", "Idempotency-Key": _as_sent(key)} | _prefer_to_wait(hold_seconds)
        call = Call("POST", JOBS, headers=headers, body=body.encode(), hold_seconds=hold_seconds)
        try:
            answer = self._transport.send(call)
            replayed = answer.headers.get("Idempotent-Replayed") == "true"
            return self._job(answer.document, answer, idempotency_key=key, replayed=replayed)
        except ClientError as error:
            error.idempotency_key = key
            raise

    def get(self, job_id: JobId) -> Job:
        """The job as it stands. Raises NotFound."""
        answer = self._get(_address(job_id))
        return self._job(answer.document, answer)

    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        queue: str | None = None,
        user_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        page_size: int = _PAGE,
    ) -> Iterator[Job]:
        """All jobs that match, newest first; each page is asked for when it is reached."""
        given = {"status": status, "kind": kind, "queue": queue, "user_id": user_id}
        query = {name: value for name, value in given.items() if value is not None}
        query |= {f"metadata.{name}": value for name, value in (metadata or {}).items()}
        query["limit"] = str(page_size)
        while True:
            answer = self._get(JOBS, query)
            for document in _data(answer):
                yield self._job(document, None)
            cursor = answer.document.get("next_cursor")
            if not isinstance(cursor, str):
                return
            query["cursor"] = cursor

    def attempts(self, job_id: JobId) -> Sequence[Mapping[str, Any]]:
        """The job's attempts and their calls, in order: what happened, and what it cost."""
        return _data(self._get(f"{_address(job_id)}/attempts"))

    def cancel(self, job_id: JobId) -> Job:
        """Ask for the job's end. One that runs ends a moment later: wait() then raises JobCancelled."""
        answer = self._transport.send(Call("POST", f"{_address(job_id)}/cancel"))
        return self._job(answer.document, answer)

    def budget(self) -> Mapping[str, Any]:
        """What the tenant may still spend, in micro-units."""
        document: Mapping[str, Any] = self._get("/api/ai/budget").document
        return document

    def usage(
        self, *, start: datetime | str | None = None, end: datetime | str | None = None, group_by: str | None = None
    ) -> Mapping[str, Any]:
        """Sums over the jobs created from `start` to before `end`: the last thirty days unless told otherwise.

        `group_by` is day, kind, provider, model or user.
        """
        given = {"from": _moment("start", start), "to": _moment("end", end), "group_by": group_by}
        query = {name: value for name, value in given.items() if value is not None}
        document: Mapping[str, Any] = self._get("/api/ai/usage", query).document
        return document

    def wait(
        self,
        job: Job | JobId,
        timeout: float | None = None,
        *,
        raise_if_held: bool = False,
        on_update: Callable[[Job], None] | None = None,
    ) -> Job:
        """The job when it has succeeded. Survives a server that goes away for less than `retry_seconds`.

        Raises JobFailed, JobCancelled, WaitTimeout after `timeout` seconds (None: no limit), and, only if
        `raise_if_held`, JobHeld: a held job goes on when a person has decided about it. `on_update` is called with
        each new state of the job.
        """
        if isinstance(job, Job) and job.ended:
            raise_unless_succeeded(job)
            return job
        job_id = job.job_id if isinstance(job, Job) else str(job)

        def look(etag: str | None, hold_seconds: int, give_up_at: float) -> Look:
            return self._look(job_id, etag, hold_seconds, give_up_at)

        ended = wait_for_end(
            look, job_id, give_up_at=_give_up_at(timeout), raise_if_held=raise_if_held, on_update=on_update
        )
        raise_unless_succeeded(ended)
        return ended

    def stream(self, job_id: JobId, starting_after: int = 0, *, timeout: float | None = None) -> EventStream:
        """The job's events after number `starting_after`, each once and in order, until the job's end.

        A connection that is cut is made again where it broke off. Raises WaitTimeout after `timeout` seconds (None: no
        limit), Unavailable if the server is away for longer than `retry_seconds`, StreamBroken, and ApiError.
        """
        path = f"{_address(job_id)}/events"
        return EventStream(self._transport, path, str(job_id), starting_after, _give_up_at(timeout))

    def text(
        self, job_id: JobId, *, timeout: float | None = None, on_event: Callable[[Event], None] | None = None
    ) -> TextStream:
        """The pieces of the job's text as they are written, and a Reset where the text starts over.

        Ends when the job has succeeded; raises JobFailed or JobCancelled when it ended otherwise, and what `stream`
        raises. `on_event` is called with each event, those that carry no text included.
        """
        return TextStream(self, str(job_id), self.stream(job_id, timeout=timeout), on_event)

    def _look(self, job_id: str, etag: str | None, hold_seconds: int, give_up_at: float) -> Look:
        headers = _prefer_to_wait(hold_seconds) | ({} if etag is None else {"If-None-Match": etag})
        call = Call("GET", _address(job_id), headers=headers, hold_seconds=hold_seconds)
        answer = self._transport.send(call, give_up_at=give_up_at)
        job = None if answer.status == 304 else self._job(answer.document, answer)
        return Look(job, answer.retry_after_seconds)

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        return self._transport.send(Call("GET", path, query=dict(query or {})))

    def _job(self, document: Any, answer: Answer | None, **known: Any) -> Job:
        try:
            etag = None if answer is None else answer.headers.get("ETag")
            return Job.read(document, self, etag=etag, **known)
        except (KeyError, TypeError, ValueError):
            raise ApiError(None, "not_an_answer", "The answer holds no job: is the URL right?") from None


def _address(job_id: JobId) -> str:
    return f"{JOBS}/{quote(str(job_id), safe='')}"


def _data(answer: Answer) -> Sequence[Mapping[str, Any]]:
    data = answer.document.get("data")
    if not isinstance(data, list):
        raise ApiError(answer.status, "not_an_answer", "The answer holds no list: is the URL right?")
    return data


def _as_sent(key: str) -> str:
    """The key as a structured-field string where it is no bare token: it may hold what a header would not keep."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return key if escaped == key and " " not in key and ";" not in key else f'"{escaped}"'


def _prefer_to_wait(seconds: int) -> dict[str, str]:
    """Not `?wait=`: a preference that a server does not know, or cannot grant, is ignored instead of refused."""
    return {"Prefer": f"wait={seconds}"} if seconds else {}


def _moment(name: str, moment: datetime | str | None) -> str | None:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{name} needs a time zone, such as datetime.now(UTC)")
        return moment.isoformat()
    return moment


def _whole_seconds(wait: float) -> int:
    if not wait >= 0:
        raise ValueError("wait must be a number of seconds, 0 or more")
    return math.ceil(min(wait, MOST_WAIT_SECONDS))


def _give_up_at(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not timeout >= 0:
        raise ValueError("timeout must be a number of seconds, 0 or more, or None")
    return elapsed() + timeout
