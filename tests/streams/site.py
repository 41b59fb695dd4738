"""Everything at once: the API under gunicorn, workers, a provider, and clients that read streams off the socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from aijobs.store import tenants
from tests.api.server import Server, served
from tests.workers.fleet import Fleet

SECRET = "a secret for tests that is long enough"


@dataclass
class Site:
    """A fleet, and an API in front of it."""

    fleet: Fleet
    api: Server

    def create(self, script: str, *, key: str | None = None, **given: Any) -> Any:
        headers = {name: given.pop(name) for name in ("Prefer",) if name in given}
        document = {"kind": "chat", "payload": {"prompt": f"[[sim: {script}]]"}, **given}
        return self.api.create(key or uuid4().hex, document, **headers)

    def submit(self, script: str, **given: Any) -> UUID:
        answered = self.create(script, **given)
        assert answered.status == 202, answered.body
        return UUID(answered.json["job_id"])

    def cancel(self, job_id: UUID) -> Any:
        return self.api.request("POST", f"/api/ai/jobs/{job_id}/cancel")

    def get(self, job_id: UUID) -> Any:
        return self.api.request("GET", f"/api/ai/jobs/{job_id}").json

    @contextlib.contextmanager
    def stream(self, job_id: UUID, after: int = 0, timeout: float = 20.0, **headers: str) -> Iterator[Stream]:
        connection = http.client.HTTPConnection("127.0.0.1", self.api.port, timeout=timeout)
        try:
            merged = {"Authorization": f"Bearer {self.api.key}", "Last-Event-ID": str(after)} | headers
            connection.request("GET", f"/api/ai/jobs/{job_id}/events", headers=merged)
            yield Stream(connection.getresponse())
        finally:
            connection.close()


@dataclass
class Stream:
    """One SSE answer. `comments` counts the lines that only say that it is alive."""

    response: http.client.HTTPResponse
    comments: int = 0
    _lines: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        return self.response.status

    def events(self) -> Iterator[dict[str, Any]]:
        """The events as they come, each checked: the id is its number, its name its type. Ends with the stream."""
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                self.comments += 1
            elif text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif fields.keys() >= {"id", "event", "data"}:
                event = json.loads(fields["data"])
                assert (str(event["seq"]), event["type"]) == (fields["id"], fields["event"])
                yield event
                fields = {}
            else:
                fields = {}


def text_of(events: list[dict[str, Any]]) -> str:
    """The output that events tell of: the deltas since the last reset."""
    text = ""
    for event in events:
        if event["type"] == "job.output.delta":
            text += event["text"]
        elif event["type"] == "job.output.reset":
            text = ""
    return text


def read_through(site: Site, job_id: UUID, *, drop: Callable[[], bool], seconds: float = 60.0) -> list[dict[str, Any]]:
    """All events of a job, by a client that loses its connection whenever `drop` says so, and comes again."""
    seen: list[dict[str, Any]] = []
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        after = seen[-1]["seq"] if seen else 0
        with contextlib.suppress(OSError, http.client.HTTPException), site.stream(job_id, after=after) as stream:
            if stream.status == 204:
                return seen
            if stream.status != 200:
                time.sleep(0.1)
                continue
            for event in stream.events():
                seen.append(event)
                if drop():
                    break
            if seen and seen[-1]["type"] in ("job.succeeded", "job.failed", "job.cancelled"):
                return seen
    raise TimeoutError(f"{job_id} has not ended; seen {len(seen)} events")


def in_threads(jobs: list[Callable[[], None]]) -> None:
    """Run all at once; the first error of any is raised."""
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - carried over to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextlib.contextmanager
def site_on(fleet: Fleet, folder: Path, *arguments: str, **environment: str) -> Iterator[Site]:
    key = tenants.create_key(fleet.db, fleet.tenant, scopes=("submit", "read", "operate"))
    settings = {
        "AIJOBS_DATABASE_URL": fleet.dsn,
        "AIJOBS_CONFIG": str(fleet.config),
        "AIJOBS_SECRET_KEYS": SECRET,
    } | environment
    with served(folder, key, *arguments, **settings) as api:
        yield Site(fleet, api)
