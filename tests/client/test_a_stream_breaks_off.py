"""Whatever happens to the connection, each event arrives once and in order, and the text is the result's."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from aijobs.client import (
    Client,
    Event,
    JobCancelled,
    JobFailed,
    NotFound,
    Reset,
    StreamBroken,
    Unauthorized,
    Unavailable,
    WaitTimeout,
)
from aijobs.client import transport as transport_module
from tests.client.faults import (
    JOB_ID,
    Behaviour,
    Events,
    FaultServer,
    Reply,
    cut,
    document,
    faults,
    in_order,
    job_document,
    limited,
    reset,
    unavailable,
)

STORY = in_order(
    "job.queued",
    "job.started",
    ("", "Half a "),
    ("", "sente"),
    "job.attempt_ended",
    "job.retry_scheduled",
    "job.started",
    "job.output.reset",
    ("", "The whole "),
    ("", "sentence, €😀."),
    "job.attempt_ended",
    "job.succeeded",
)
TEXT = "The whole sentence, €😀."
DONE = document(job_document("succeeded", result={"text": TEXT}))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between connections short enough for a test."""
    monkeypatch.setattr("aijobs.domain.backoff.MINIMUM_SECONDS", 0.01)
    monkeypatch.setattr(transport_module, "BACKOFF_SECONDS", 0.02)


def numbers(server: FaultServer, after: int = 0) -> list[int]:
    with Client(server.url, "aij_k", retry_seconds=5) as client:
        return [event.seq for event in client.stream(JOB_ID, after)]


ALL = list(range(1, 13))


@pytest.mark.parametrize(
    "behaviours",
    [
        pytest.param((), id="well"),
        pytest.param((Events(STORY).broken_after(3),), id="cut between events"),
        pytest.param((Events(STORY).broken_after(3, part=40),), id="cut in an event"),
        pytest.param((Events(STORY).broken_after(4, reset, part=7),), id="reset in an event"),
        pytest.param((Events(STORY).broken_after(3, Reply.end_stream, part=40),), id="closed in an event"),
        pytest.param((Events(STORY).broken_after(12),), id="cut after the last"),
        pytest.param((Events(STORY).broken_after(0),), id="cut before the first"),
        pytest.param((cut, reset), id="no answer at all"),
        pytest.param((unavailable("0.05"), unavailable(), limited("0.05")), id="refused for a while"),
        pytest.param((Events(STORY).broken_after(5), Events(STORY).with_duplicates), id="everything again"),
        pytest.param((Events(STORY).broken_after(5), Events(STORY).with_gap), id="a gap once"),
        pytest.param((Events(STORY).in_bytes,), id="bytes and comments"),
    ],
)
def test_each_event_arrives_once(behaviours: tuple[Behaviour, ...]) -> None:
    with faults(*behaviours, then=Events(STORY).well) as server:
        assert numbers(server) == ALL


@pytest.mark.parametrize("seed", range(20))
def test_each_event_arrives_once_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    story = Events(STORY)

    def some_fault() -> Behaviour:
        broken = story.broken_after(
            dice.randrange(4), dice.choice([cut, reset, Reply.end_stream]), part=dice.randrange(60)
        )
        return dice.choice([broken, broken, broken, cut, reset, unavailable("0.01"), story.in_bytes])

    with faults(*(some_fault() for _ in range(8)), then=story.well) as server:
        assert numbers(server) == ALL


def test_it_goes_on_after_the_last_event_that_was_whole() -> None:
    with faults(Events(STORY).broken_after(3, part=40), then=Events(STORY).well) as server:
        numbers(server, after=1)
        assert [asked.after for asked in server.asked] == [1, 4]


def test_a_reader_may_take_its_time() -> None:
    with (
        faults(Events(STORY).broken_after(3), then=Events(STORY).well) as server,
        Client(server.url, "aij_k", retry_seconds=0.3) as client,
    ):
        seen = []
        for event in client.stream(JOB_ID):
            seen.append(event.seq)
            if event.seq == 3:
                time.sleep(0.6)
        assert seen == ALL


def test_what_is_asked_for_past_the_end_is_empty() -> None:
    with faults(then=Events(STORY).well) as server:
        assert numbers(server, after=12) == []


def test_an_end_that_an_operator_undid_is_not_the_end() -> None:
    story = Events(in_order("job.queued", "job.failed", "job.queued", "job.started", "job.succeeded"))
    with faults(story.broken_after(2), then=story.well) as server:
        assert numbers(server) == [1, 2, 3, 4, 5]


def test_an_event_is_what_was_sent() -> None:
    with faults(then=Events(STORY).well) as server, Client(server.url, "aij_k") as client:
        third = list(client.stream(JOB_ID))[2]
    assert (third.seq, third.type, third.data, third.terminal) == (3, "job.output.delta", {"text": "Half a "}, False)
    assert third.created_at is not None
    assert third.created_at.tzinfo is not None


def test_a_snapshot_stands_for_what_is_no_longer_kept() -> None:
    running = job_document("running")
    with faults(then=Events(STORY, trimmed=9, job=running).well) as server, Client(server.url, "aij_k") as client:
        first, *others = client.stream(JOB_ID)
    assert first == Event(9, "snapshot", running, None)
    assert [event.seq for event in others] == [10, 11, 12]


def test_wishes_of_the_server_are_kept() -> None:
    with faults(unavailable("0.4"), then=Events(STORY).well) as server:
        assert numbers(server) == ALL
        first, second = (asked.at for asked in server.asked)
        assert second - first >= 0.4


def test_a_server_that_stays_away_is_told_of() -> None:
    with faults(then=unavailable()) as server, Client(server.url, "aij_k", retry_seconds=0.3) as client:
        with pytest.raises(Unavailable) as caught:
            list(client.stream(JOB_ID))
        assert (caught.value.status, caught.value.code) == (503, "unavailable")


def test_a_stream_that_never_brings_anything_is_given_up() -> None:
    nothing = Events(STORY).broken_after(0)
    with faults(then=nothing) as server, Client(server.url, "aij_k", retry_seconds=0.3) as client:
        stream = client.stream(JOB_ID)
        with pytest.raises(Unavailable, match="again and again"):
            list(stream)


def garbage(reply: Reply) -> None:
    reply.begin_stream()
    reply.chunk(b"id: 1\ndata: {not json\n\n")
    reply.end_stream()


@pytest.mark.parametrize("wrong", [garbage, Events(STORY).with_gap])
def test_a_stream_that_is_wrong_again_and_again_is_broken(wrong: Behaviour) -> None:
    with faults(then=wrong) as server, pytest.raises(StreamBroken):
        numbers(server)


def test_what_is_no_stream_is_said_to_be_none() -> None:
    with faults(then=document({})) as server, pytest.raises(StreamBroken, match="URL"):
        numbers(server)


@pytest.mark.parametrize(
    ("status", "code", "error"), [(404, "not_found", NotFound), (401, "unauthenticated", Unauthorized)]
)
def test_a_refusal_is_not_repeated(status: int, code: str, error: type[Exception]) -> None:
    with faults(then=lambda reply: reply.problem(status, code)) as server:
        with pytest.raises(error):
            numbers(server)
        assert len(server.asked) == 1


def silent(reply: Reply) -> None:
    """Two events, and then nothing for longer than any test waits."""
    Events(STORY).broken_after(2, lambda _: time.sleep(5))(reply)


def test_the_time_is_kept_in_silence() -> None:
    with faults(then=silent) as server, Client(server.url, "aij_k") as client:
        begun = time.monotonic()
        seen = []
        with pytest.raises(WaitTimeout):
            seen.extend(event.seq for event in client.stream(JOB_ID, timeout=0.5))
        assert 0.4 < time.monotonic() - begun < 2


def test_a_stream_may_be_left() -> None:
    with faults(then=silent) as server, Client(server.url, "aij_k") as client:
        with client.stream(JOB_ID) as stream:
            assert next(stream).seq == 1
        assert stream.position == 1
        assert list(stream) == []


def pieces(server: FaultServer) -> Iterator[str | Reset]:
    with Client(server.url, "aij_k", retry_seconds=5) as client:
        text = client.text(JOB_ID)
        yield from text
        assert text.text == TEXT
        assert text.job is not None
        assert text.job.text == TEXT


def ask_for_job_or_events(story: Events, job: Behaviour) -> Behaviour:
    return lambda reply: (story.well if reply.asked.path.endswith("/events") else job)(reply)


def test_text_that_starts_over_says_so() -> None:
    then = ask_for_job_or_events(Events(STORY), DONE)
    with faults(Events(STORY).broken_after(4, part=30), then=then) as server:
        assert list(pieces(server)) == ["Half a ", "sente", Reset(), "The whole ", "sentence, €😀."]


def test_text_whose_beginning_is_gone_is_made_whole_at_the_end() -> None:
    then = ask_for_job_or_events(Events(STORY, trimmed=9, job=job_document("running")), DONE)
    with faults(then=then) as server:
        assert list(pieces(server)) == ["sentence, €😀.", Reset(), TEXT]


def test_text_of_which_nothing_is_kept_is_the_result() -> None:
    then = ask_for_job_or_events(Events(STORY, trimmed=12, job=job_document("succeeded")), DONE)
    with faults(then=then) as server:
        assert list(pieces(server)) == [TEXT]


@pytest.mark.parametrize(("status", "error"), [("failed", JobFailed), ("cancelled", JobCancelled)])
def test_text_of_a_job_without_success_ends_with_an_error(status: str, error: type[Exception]) -> None:
    story = Events(in_order("job.queued", "job.started", ("", "Half"), f"job.{status}"))
    job = document(job_document(status, error={"code": "refused", "class": "permanent", "message": "m"}))
    with faults(then=ask_for_job_or_events(story, job)) as server, Client(server.url, "aij_k") as client:
        text = client.text(JOB_ID)
        assert next(text) == "Half"
        with pytest.raises(error):
            next(text)


def test_text_of_a_job_that_an_operator_had_tried_again_goes_on() -> None:
    story = in_order(
        "job.started", ("", "Half"), "job.failed", "job.queued", "job.output.reset", ("", TEXT), "job.succeeded"
    )

    def closes_after_each_end(reply: Reply) -> None:
        if reply.asked.path.endswith("/events"):
            (Events(story[:3]) if reply.asked.after < 3 else Events(story)).well(reply)
        else:
            DONE(reply)

    with faults(then=closes_after_each_end) as server:
        assert list(pieces(server)) == ["Half", Reset(), TEXT]
