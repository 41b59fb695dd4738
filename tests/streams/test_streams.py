"""A stream tells all of a job's events, in order, once; whoever comes again reads on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from aijobs.store import tenants
from tests.streams.site import SECRET, Site, in_threads, read_through, text_of
from tests.workers.fleet import Fleet, wait_for

SLOW = "tokens=5 first_byte_ms=100 delta_ms=250"


def test_a_job_is_followed_from_its_creation_to_its_end(site: Site) -> None:
    job_id = site.submit(SLOW)
    with site.stream(job_id) as stream:
        assert stream.status == 200
        headers = dict(stream.response.getheaders())
        assert headers["Content-Type"].startswith("text/event-stream")
        assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-store", "no")
        events = list(stream.events())
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    types = [event["type"] for event in events]
    assert types[:2] == ["job.queued", "job.started"] and types[-1] == "job.succeeded"
    assert types.count("job.output.delta") >= 3, types
    assert {event["job_id"] for event in events} == {str(job_id)} and all(event["created_at"] for event in events)
    assert text_of(events) == site.get(job_id)["result"]["text"] != ""


def test_the_text_comes_while_the_provider_writes_it(site: Site) -> None:
    job_id = site.submit("tokens=6 delta_ms=300")
    arrived: list[float] = []
    with site.stream(job_id) as stream:
        for event in stream.events():
            if event["type"] == "job.output.delta":
                arrived.append(time.monotonic())
    assert len(arrived) >= 4
    assert arrived[-1] - arrived[0] > 0.6, "it came all at once"


def test_past_the_end_there_is_nothing_more(site: Site) -> None:
    job_id = site.submit("text=x")
    with site.stream(job_id) as stream:
        last = list(stream.events())[-1]
    for after in (last["seq"], last["seq"] + 1000):
        with site.stream(job_id, after=after) as stream:
            assert stream.status == 204
    with site.stream(job_id, after=last["seq"] - 1) as stream:
        assert [event["type"] for event in stream.events()] == ["job.succeeded"]


def test_after_an_operators_retry_the_stream_goes_on(site: Site) -> None:
    job_id = site.submit("text=x delta_ms=5000")
    site.cancel(job_id)
    with site.stream(job_id) as stream:
        first = list(stream.events())
    assert first[-1]["type"] == "job.cancelled"
    assert site.api.request("POST", f"/api/ai/jobs/{job_id}/retry").status == 200
    with site.stream(job_id, after=first[-1]["seq"]) as stream:
        assert stream.status == 200
        assert next(iter(stream.events()))["seq"] == first[-1]["seq"] + 1
    site.cancel(job_id)
    # From the beginning the first end is not the end.
    with site.stream(job_id) as stream:
        assert [event["type"] for event in stream.events()].count("job.cancelled") == 2


def test_a_new_attempt_starts_the_text_over(site: Site) -> None:
    job_id = site.submit("tokens=4 delta_ms=400")
    with site.stream(job_id) as stream:
        events = []
        for event in stream.events():
            events.append(event)
            if event["type"] == "job.output.delta" and len(events) < 6:
                os.kill(site.fleet.owner(job_id), signal.SIGKILL)
    assert "job.output.reset" in [event["type"] for event in events]
    assert text_of(events) == site.get(job_id)["result"]["text"]


def test_many_follow_one_job_and_each_gets_everything(site: Site) -> None:
    job_id = site.submit(SLOW)
    texts: list[str] = []

    def follow() -> None:
        time.sleep(0.3 * (len(texts) % 3))
        texts.append(text_of(read_through(site, job_id, drop=lambda: False)))

    in_threads([follow] * 20)
    assert set(texts) == {site.get(job_id)["result"]["text"]}


def test_what_retention_has_taken_is_told_as_a_snapshot(site: Site) -> None:
    job_id = site.submit(SLOW)
    site.fleet.wait(job_id)
    site.fleet.rows("CREATE TABLE taken AS SELECT * FROM ai_events WHERE seq <= 3")
    site.fleet.rows("DELETE FROM ai_events WHERE job_id = %s AND seq <= 3", job_id)
    with site.stream(job_id, after=1) as stream:
        snapshot, *rest = stream.events()
    assert (snapshot["type"], snapshot["seq"]) == ("snapshot", 3)
    assert snapshot["job"]["job_id"] == str(job_id) and snapshot["job"]["status"] == "succeeded"
    assert [event["seq"] for event in rest] == list(range(4, 4 + len(rest)))
    site.fleet.rows("INSERT INTO ai_events SELECT * FROM taken")


def test_a_quiet_stream_says_that_it_is_alive(site: Site) -> None:
    job_id = site.submit("text=x", run_at="2099-01-01T00:00:00Z")
    with site.stream(job_id, timeout=20.0) as stream:
        started = time.monotonic()
        while not stream.comments:
            stream.comments += stream.response.readline().startswith(b":")
        assert time.monotonic() - started < 15
    site.cancel(job_id)


def test_hints_that_never_come_cost_a_second(make_site: Callable[..., Site], fleet: Fleet) -> None:
    fleet.start()
    site = make_site(AIJOBS_WEB_PROCESSES="1")
    job_id = site.submit("tokens=3 delta_ms=600")
    with site.stream(job_id) as stream:
        events = []
        for event in stream.events():
            events.append(event)
            fleet.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%%notifier%%'"
                " OR query LIKE '%%LISTEN%%' AND application_name = 'aijobs api'"
            )
    assert events[-1]["type"] == "job.succeeded"
    assert text_of(events) == site.get(job_id)["result"]["text"]


def test_streams_end_with_their_process_and_go_on_with_the_next(site: Site) -> None:
    job_id = site.submit("tokens=6 delta_ms=500")
    (worker,) = site.api.workers()
    with site.stream(job_id) as stream:
        events = []
        for event in stream.events():
            events.append(event)
            if len(events) == 3:
                os.kill(worker, signal.SIGTERM)
    assert events[-1]["type"] != "job.succeeded", "it went on in a process that was told to stop"
    wait_for(lambda: worker not in site.api.workers(), "the worker's end", 10.0)
    rest = []
    with site.stream(job_id, after=events[-1]["seq"]) as stream:
        rest = list(stream.events())
    assert text_of(events + rest) == site.get(job_id)["result"]["text"]
    assert [event["seq"] for event in events + rest] == list(range(1, len(events + rest) + 1))


def test_seats_are_bounded_and_given_back(make_site: Callable[..., Site], fleet: Fleet) -> None:
    """With 12 threads 8 may stream or wait; the rest answer everything else."""
    fleet.start()
    site = make_site(AIJOBS_WEB_PROCESSES="1", AIJOBS_WEB_THREADS="12")
    job_id = site.submit("text=x first_byte_ms=60000")
    for _ in range(3):
        with contextlib.ExitStack() as streams:
            for _ in range(8):
                wait_for(lambda: open_one(site, job_id, streams), "a seat", 5.0)
            with site.stream(job_id) as refused:
                assert refused.status == 503 and refused.response.getheader("Retry-After")
                assert json.loads(refused.response.read())["code"] == "unavailable"
            started = time.monotonic()
            waited = site.api.request("GET", f"/api/ai/jobs/{job_id}", Prefer="wait=10")
            assert waited.status == 200 and "Preference-Applied" not in waited.headers
            created = site.create("text=y", Prefer="wait=10")
            assert created.status == 202 and "Preference-Applied" not in created.headers
            assert site.api.seconds_to_live() < 2 and time.monotonic() - started < 5
    site.cancel(job_id)


def open_one(site: Site, job_id: UUID, streams: contextlib.ExitStack) -> bool:
    """Open a stream and keep it; False if there was no seat."""
    with contextlib.ExitStack() as mine:
        opened = mine.enter_context(site.stream(job_id))
        if opened.status == 200:
            streams.push(mine.pop_all())
        return opened.status == 200


def test_nobody_follows_anothers_job(site: Site) -> None:
    job_id = site.submit("text=x")
    stranger = tenants.create_key(site.fleet.db, tenants.create_tenant(site.fleet.db, "stranger"))
    own = f"/api/ai/jobs/{job_id}/events"
    for path, method in ((own, "GET"), (f"{own}/token", "POST")):
        answers = [
            site.api.request(method, path, Authorization=f"Bearer {stranger}"),
            site.api.request(method, path.replace(str(job_id), str(uuid4()))),
            site.api.request(method, path.replace(str(job_id), "nonsense")),
        ]
        assert {answer.status for answer in answers} == {404}
        assert len({answer.json["detail"] for answer in answers}) == 1
        assert site.api.request(method, path, Authorization="").status == 401


def test_a_token_opens_the_stream_of_its_job_and_nothing_else(site: Site) -> None:
    job_id, other = site.submit("text=x"), site.submit("text=y")
    made = site.api.request("POST", f"/api/ai/jobs/{job_id}/events/token")
    assert made.status == 201 and made.json["expires_at"]
    assert SECRET not in made.body.decode()
    token = made.json["token"]
    opened = site.api.request("GET", made.json["url"], Authorization="")
    assert opened.status == 200 and b"job.queued" in opened.body
    for path in (f"/api/ai/jobs/{other}/events?token={token}", f"/api/ai/jobs/{job_id}/events?token={token}x"):
        assert site.api.request("GET", path, Authorization="").status == 401
    for path in (f"/api/ai/jobs/{job_id}?token={token}", f"/api/ai/jobs?token={token}"):
        assert site.api.request("GET", path, Authorization="").status == 401
    assert site.api.request("POST", f"/api/ai/jobs/{job_id}/cancel?token={token}", Authorization="").status == 401


def test_tokens_of_an_older_key_are_good_until_it_is_taken_away(make_site: Callable[..., Site], fleet: Fleet) -> None:
    job_id = fleet.submit("[[sim: text=x]]")
    fleet.start()
    fleet.wait(job_id)
    old = make_site(AIJOBS_SECRET_KEYS="the older key of the two")
    url = old.api.request("POST", f"/api/ai/jobs/{job_id}/events/token").json["url"]
    both = make_site(AIJOBS_SECRET_KEYS="the newer key of the two,the older key of the two")
    assert both.api.request("GET", url, Authorization="").status == 200
    new = make_site(AIJOBS_SECRET_KEYS="the newer key of the two")
    assert new.api.request("GET", url, Authorization="").status == 401


@pytest.mark.parametrize("query", ["?starting_after=-1", "?starting_after=x", "?after=3", "?starting_after=1e3"])
def test_an_address_that_asks_for_nonsense_is_refused(site: Site, query: str) -> None:
    job_id = site.submit("text=x")
    answered = site.api.request("GET", f"/api/ai/jobs/{job_id}/events{query}")
    assert (answered.status, answered.json["code"]) == (400, "invalid_query")


def test_only_events_have_numbers_so_that_a_drop_after_any_frame_loses_nothing(site: Site) -> None:
    job_id = site.submit("tokens=8 delta_ms=200")
    events = read_through(site, job_id, drop=lambda: True)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    with site.stream(job_id) as stream:
        frames = stream.response.read().decode().split("\n\n")
    assert frames[0] == "retry: 1000"
    assert all(frame.startswith("id: ") or "id:" not in frame for frame in frames)
    assert frames[-2].count("event: job.succeeded") == 1


def test_a_head_and_another_accept_are_answered(site: Site) -> None:
    job_id = site.submit("text=x")
    site.fleet.wait(job_id)
    path = f"/api/ai/jobs/{job_id}/events"
    for _ in range(300):  # more than there are seats: none may be kept
        head = site.api.request("HEAD", path)
        assert (head.status, head.body) == (200, b"")
    answered = site.api.request("GET", path, Accept="application/json")
    assert answered.status == 200 and answered.headers["Content-Type"].startswith("text/event-stream")


def test_streams_hold_no_connection_of_the_pool(make_site: Callable[..., Site], fleet: Fleet) -> None:
    fleet.start()
    site = make_site(AIJOBS_WEB_PROCESSES="1", AIJOBS_POOL_SIZE="2")
    job_id = site.submit("text=x first_byte_ms=60000")
    with contextlib.ExitStack() as streams:
        for _ in range(30):
            assert streams.enter_context(site.stream(job_id)).status == 200
        for _ in range(50):
            assert site.api.request("GET", f"/api/ai/jobs/{job_id}").status == 200
        rows = fleet.rows("SELECT state FROM pg_stat_activity WHERE application_name = 'aijobs api'")
        # Two of the pool, the one that listens for all, and the one that notifies workers of what was created.
        assert len(rows) <= 4 and {row["state"] for row in rows} == {"idle"}
    site.cancel(job_id)
