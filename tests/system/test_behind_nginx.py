"""The API behind nginx, with the server block that we ship: streams stream, and answers arrive as they were given."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from aijobs.domain.jobs import JobStatus
from aijobs.store import tenants
from tests.api.server import Answer, Server, served
from tests.system.proxy import proxied
from tests.workers.fleet import Fleet, audit, fleet_on, wait_for

# Debian keeps it where only root's PATH leads.
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CHAT = {"kind": "chat", "payload": {"prompt": "Hello"}}


@dataclass
class Site:
    """gunicorn, and nginx before it."""

    direct: Server
    port: int
    fleet: Fleet

    def through(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        merged = {"Authorization": f"Bearer {self.direct.key}", "Content-Type": "application/json"}
        merged |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, merged)
            answered = connection.getresponse()
            return Answer(answered.status, dict(answered.getheaders()), answered.read())
        finally:
            connection.close()

    def create(self, key: str, document: Any) -> Answer:
        return self.through("POST", "/api/ai/jobs", json.dumps(document).encode(), Idempotency_Key=key)

    @contextmanager
    def following(self, job_id: UUID) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        connection.request("GET", events_of(job_id), headers={"Authorization": f"Bearer {self.direct.key}"})
        answered = connection.getresponse()
        try:
            yield answered
        finally:
            answered.close()
            connection.close()


@pytest.fixture
def make_site(database_url: str, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Start all of it. Changes are to our server block, the keywords are settings."""
    if NGINX is None:
        pytest.skip("no nginx (Debian: nginx-light)")
    nginx = NGINX
    with fleet_on(database_url, tmp_path) as fleet, ExitStack() as exits:

        def make(changes: dict[str, str] | None = None, **settings: str) -> Site:
            environment = {"AIJOBS_DATABASE_URL": database_url, "AIJOBS_CONFIG": str(fleet.config)} | settings
            key = tenants.create_key(fleet.db, fleet.tenant)
            direct = exits.enter_context(served(tmp_path, key, **environment))
            port = exits.enter_context(proxied(nginx, tmp_path, direct.port, changes or {}))
            return Site(direct, port, fleet)

        yield make


def events_of(job_id: UUID) -> str:
    return f"/api/ai/jobs/{job_id}/events"


def read_events(answered: http.client.HTTPResponse) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """When each event or comment arrived, its type and its data; a comment has the type ":"."""
    kind = ""
    for line in answered:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if line.startswith(b":"):
            yield time.monotonic(), ":", {}
        elif name == "event":
            kind = value
        elif name == "data":
            yield time.monotonic(), kind, json.loads(value)


def test_pieces_of_an_answer_arrive_one_by_one(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.fleet.start()
    job_id = site.fleet.submit("[[sim: tokens=20 delta_ms=150]]")
    with site.following(job_id) as answered:
        assert answered.status == 200 and answered.headers["Content-Type"].startswith("text/event-stream")
        arrived = list(read_events(answered))
    pieces = [(at, data["text"]) for at, kind, data in arrived if kind == "job.output.delta"]
    # 20 pieces in three seconds, of which the worker writes those of one tick together.
    assert len(pieces) >= 8 and pieces[-1][0] - pieces[0][0] > 1.5
    assert len([wait for wait in waits(pieces) if wait > 0.05]) >= 5
    result = site.fleet.job(job_id).result
    assert result is not None and "".join(text for _, text in pieces) == result["text"]
    assert [data["seq"] for _, _, data in arrived] == list(range(1, len(arrived) + 1))
    audit(site.fleet)


def waits(pieces: list[tuple[float, str]]) -> list[float]:
    return [later[0] - earlier[0] for earlier, later in pairwise(pieces)]


def test_a_silent_job_keeps_its_stream_beyond_the_read_timeout(make_site: Callable[..., Site]) -> None:
    """nginx closes what is silent for its read timeout, here less than half as long as the job says nothing."""
    site = make_site({"proxy_read_timeout 75s;": "proxy_read_timeout 12s;"})
    site.fleet.start(AIJOBS_ATTEMPT_SECONDS="60")
    job_id = site.fleet.submit("[[sim: first_byte_ms=27000 text='At last']]")
    with site.following(job_id) as answered:
        arrived = list(read_events(answered))
    kinds = [kind for _, kind, _ in arrived]
    assert kinds[-1] == "job.succeeded" and kinds.count(":") >= 2
    assert arrived[-1][0] - arrived[0][0] > 24
    # The timeout is in force: a request that waits in silence is cut.
    silent = site.fleet.submit("[[sim: first_byte_ms=20000]]")
    site.fleet.wait_until_sent(silent)
    assert site.through("GET", f"/api/ai/jobs/{silent}?wait=18").status == 504


def test_a_client_that_goes_away_frees_its_stream(make_site: Callable[..., Site]) -> None:
    """gunicorn has one process here, which serves one stream at a time."""
    site = make_site(AIJOBS_WEB_PROCESSES="1", AIJOBS_WEB_THREADS="5")
    job_id = site.fleet.submit("nobody runs this")
    with site.following(job_id) as answered:
        assert next(read_events(answered))[1] == "job.queued"
        refused = site.through("GET", events_of(job_id))
        assert refused.status == 503 and refused.headers["Retry-After"] and refused.json["code"] == "unavailable"
    started = time.monotonic()

    def is_served() -> bool:
        with site.following(job_id) as again:
            return again.status == 200

    wait_for(is_served, "a free stream")
    assert time.monotonic() - started < 5
    assert site.fleet.job(job_id).status is JobStatus.QUEUED, "the job does not mind"


def test_answers_pass_through_unchanged(make_site: Callable[..., Site]) -> None:
    site = make_site()
    created = site.create("key-1", CHAT)
    assert created.status == 202 and created.headers["Retry-After"] == "1"
    assert created.headers["Location"] == created.json["links"]["self"]
    replayed = site.create("key-1", CHAT)
    assert replayed.status == 202 and replayed.headers["Idempotent-Replayed"] == "true"
    assert site.direct.request("GET", created.json["links"]["self"]).json == created.json
    read = site.through("GET", created.json["links"]["self"])
    same = site.through("GET", created.json["links"]["self"], If_None_Match=read.headers["ETag"])
    assert (read.json, same.status) == (created.json, 304)

    other = {"kind": "chat", "payload": {"prompt": "Something else"}}
    conflict = site.create("key-1", other)
    assert (conflict.status, as_problem(conflict)) == (409, as_problem(site.direct.create("key-1", other)))
    assert site.through("POST", f"{created.json['links']['self']}/cancel").json["status"] == "cancelled"
    unknown = site.through("GET", "/api/ai/jobs/none")
    assert (unknown.status, unknown.json["code"]) == (404, "not_found")


def test_what_is_too_large_is_refused_by_the_api_itself(make_site: Callable[..., Site]) -> None:
    """The API answers before it has read such a body, while nginx is still sending it."""
    site = make_site()
    for size in (1_048_577, 1_100_000, 1_500_000, 2_000_000):
        for number in range(10):
            answered = site.through("POST", "/api/ai/jobs", b" " * size, Idempotency_Key=f"large-{size}-{number}")
            assert (answered.status, answered.json["code"]) == (413, "payload_too_large")
            assert answered.headers["Content-Type"] == "application/problem+json"
    assert site.create("small", CHAT).status == 202


def as_problem(answered: Answer) -> dict[str, Any]:
    """A problem document without what differs from request to request."""
    assert answered.headers["Content-Type"] == "application/problem+json"
    return {name: value for name, value in answered.json.items() if name not in ("request_id", "instance")}
