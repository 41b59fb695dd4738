"""A job's events as a stream (Server-Sent Events), and the tokens with which a browser may read it.

A stream reads what there is in the table, and then what the process's fanout hands it. It holds a thread and no
database connection. Whoever reads on with the number of the last event gets all that follow and none twice.
"""

from __future__ import annotations

import json
import re
import select
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl
from uuid import UUID

from flask import Flask, Response, request

from aijobs.api import stream_tokens
from aijobs.api.auth import Caller, allow
from aijobs.api.fanout import PAGE, Follower
from aijobs.api.jobs import job_id_from
from aijobs.api.listing import refuse_query
from aijobs.api.problems import Problem, not_found
from aijobs.api.render import answer, job_address, job_body
from aijobs.api.service import Service, service
from aijobs.clock import elapsed
from aijobs.errors import AijobsError
from aijobs.store import events, jobs
from aijobs.store.events import Event, Reader

# Proxies close what says nothing for a minute; and a stream that nobody reads is noticed by writing to it.
COMMENT_SECONDS = 10.0
LOOK_SECONDS = 1.0
FULL_RETRY_SECONDS = 5
_ENDS = frozenset({"job.succeeded", "job.failed", "job.cancelled"})
_NUMBER = re.compile(r"[0-9]{1,9}")
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def install(app: Flask) -> None:
    app.add_url_rule("/api/ai/jobs/<job_id>/events", "job_events", follow, methods=["GET"])
    app.add_url_rule("/api/ai/jobs/<job_id>/events/token", "job_events_token", make_token, methods=["POST"])


def make_token(job_id: str) -> Response:
    """A token for the stream of this job alone, for minutes."""
    caller = allow("read")
    refuse_query()
    wanted = job_id_from(job_id)
    if events.place(service().db, caller.tenant_id, wanted) is None:
        raise not_found()
    keys = service().settings.secret_keys
    if not keys:
        raise Problem("not_configured", "Stream tokens need AIJOBS_SECRET_KEYS.")
    token = stream_tokens.sign(keys, caller.tenant_id, wanted)
    expires_at = datetime.now(UTC) + timedelta(seconds=stream_tokens.VALID_SECONDS)
    url = f"{job_address(wanted)}/events?token={token}"
    return answer({"token": token, "expires_at": expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"), "url": url}, 201)


def caller_of_token() -> Caller | None:
    """Who follows a job by a token in the address; None if the request is no such thing, or the token is not good."""
    token = request.args.get("token")
    if request.endpoint != "job_events" or token is None:
        return None
    wanted = job_id_from((request.view_args or {})["job_id"])
    tenant_id = stream_tokens.tenant_of(service().settings.secret_keys, token, wanted)
    if tenant_id is None:
        raise Problem("unauthenticated", "The stream token is not valid, or not any more: ask for another.")
    return Caller(tenant_id, frozenset({"read"}))


def follow(job_id: str) -> Response:
    """Stream the events after the last one that the client has seen: 204 if the job has ended and there are none."""
    caller = allow("read")
    wanted = job_id_from(job_id)
    after = _after()
    place = events.place(service().db, caller.tenant_id, wanted)
    if place is None:
        raise not_found()
    if after >= place.last and place.status.terminal:
        return Response(status=204, headers=_HEADERS)
    if not service().seats.take():
        detail = "This process serves as many streams as it can; the same request may be sent again."
        raise Problem("unavailable", detail, headers={"Retry-After": str(FULL_RETRY_SECONDS)})
    opening = "retry: 1000\n\n"
    after = min(after, place.last)
    if after + 1 < place.first:
        after = place.first - 1
        opening += _snapshot(caller, wanted, after)
    stream = _Stream(service(), caller.tenant_id, wanted, after, opening, request.environ.get("gunicorn.socket"))
    response = Response(stream.run(), headers=_HEADERS, content_type="text/event-stream; charset=utf-8")
    # Also for a stream whose client was gone before its first byte.
    response.call_on_close(stream.close)
    return response


def _snapshot(caller: Caller, job_id: UUID, last_taken: int) -> str:
    """The job as a whole, in place of the events that retention has taken."""
    job = jobs.get(service().db, caller.tenant_id, job_id)
    if job is None:
        raise not_found()
    data = json.dumps({"seq": last_taken, "type": "snapshot", "job": job_body(job, caller)})
    return f"id: {last_taken}\nevent: snapshot\ndata: {data}\n\n"


class _Stream:
    """One client that follows one job. `opening` is what it is told first."""

    def __init__(
        self,
        shared: Service,
        tenant_id: UUID,
        job_id: UUID,
        after: int,
        opening: str,
        client: socket.socket | None,
    ) -> None:
        self._shared = shared
        self._tenant_id = tenant_id
        self._job_id = job_id
        self._after = after
        self._opening = opening
        self._client = client
        self._follower: Follower | None = None

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()
        self._shared.seats.give_back()

    def run(self) -> Iterator[str]:
        """The stream's text. It ends after the job's last event, when the client is gone, and when the process ends."""
        yield self._opening
        said_at = elapsed()
        try:
            for found in self._batches():
                if found:
                    said_at = elapsed()
                    yield "".join(map(frame, found))
                    if found[-1].type in _ENDS:
                        return
                elif elapsed() - said_at >= COMMENT_SECONDS:
                    said_at = elapsed()
                    yield ": still here\n\n"
                if self._shared.fanout.leaving or self._is_gone():
                    return
        except AijobsError:
            return  # the database is away: the client comes again, and reads on

    def _batches(self) -> Iterator[list[Event]]:
        """What follows, piece by piece: first from the table, then as it comes; an empty one now and then."""
        while page := self._page():
            yield page
        self._follower = follower = self._shared.fanout.follow(self._tenant_id, self._job_id, self._after)
        while True:
            if follower.behind:
                page = self._page()
                follower.after = self._after if page else follower.behind_to
                yield page
            found = follower.take(LOOK_SECONDS)
            self._after = follower.after
            yield found

    def _page(self) -> list[Event]:
        with self._shared.db.connection() as connection:
            reader = Reader(self._tenant_id, self._job_id, self._after)
            found = events.read_on(connection, [reader], limit=PAGE)
        if found:
            self._after = found[-1].seq
        return found

    def _is_gone(self) -> bool:
        """Whether the client has hung up: a client of a stream has nothing to send, so what can be read is its end."""
        if self._client is None:
            return False
        try:
            ready, _, _ = select.select([self._client], [], [], 0)
            return bool(ready) and not self._client.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True


def frame(event: Event) -> str:
    """An event as the stream has it: its data on one line, with what is common to all first."""
    common = json.dumps(
        {"seq": event.seq, "job_id": str(event.job_id), "type": event.type, "created_at": event.created_at}
    )
    data = common if event.data_json == "{}" else f"{common[:-1]}, {event.data_json[1:]}"
    return f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n"


def _after() -> int:
    """The number of the last event that the client has seen, 0 for none. Raises Problem `invalid_query`."""
    given = dict(parse_qsl(request.query_string.decode("ascii", "replace"), keep_blank_values=True))
    unknown = sorted(given.keys() - {"starting_after", "token"})
    if unknown:
        raise Problem("invalid_query", "Only starting_after and token are known here.")
    # A browser that reconnects sends the header to the address it was first given.
    text = request.headers.get("Last-Event-ID") or given.get("starting_after", "0")
    if not _NUMBER.fullmatch(text):
        raise Problem("invalid_query", "starting_after and Last-Event-ID are the number of an event.")
    return int(text)
