from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aijobs.sse import EventTooLarge, ServerEvent, read_events

LINES = st.sampled_from([b"data: 1", b"data:2", b"data", b"event: a", b"", b"", b": comment", "data: €😀".encode()])
ENDINGS = st.sampled_from([b"\r", b"\n", b"\r\n"])
# Whole lines, and between them what a parser may stumble over: marks, half characters, separators that end no line.
ODDITIES = st.sampled_from(
    [b"", b"", b"", b"\r", b"\n", b":", b" ", b"\xef\xbb\xbf", b"\xff", b"\xe2\x82", b"\x00", b"\x85"]
)
STREAMS = st.lists(st.tuples(ODDITIES, LINES, ENDINGS).map(b"".join), max_size=30).map(b"".join)


@given(STREAMS, st.data())
def test_it_does_not_matter_where_a_stream_is_cut(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = list(read_events([stream]))
    assert list(read_events(pieces)) == whole
    assert list(read_events(stream[at : at + 1] for at in range(len(stream)))) == whole


@given(STREAMS)
def test_the_kind_of_line_ending_does_not_matter(stream: bytes) -> None:
    plain = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    expected = list(read_events([plain]))
    assert list(read_events([plain.replace(b"\n", b"\r\n")])) == expected
    assert list(read_events([plain.replace(b"\n", b"\r")])) == expected


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: 1\n\n", [("message", "1")]),
        (b"data:1\n\n", [("message", "1")]),
        (b"data:  1\n\n", [("message", " 1")]),
        (b"data\n\n", [("message", "")]),
        (b"data: a\ndata: b\n\n", [("message", "a\nb")]),
        (b"event: add\ndata: x\n\ndata: y\n\n", [("add", "x"), ("message", "y")]),
        (b"event: lost\n\ndata: y\n\n", [("message", "y")]),
        (b": ping\n\n:\ndata: x\n: more\n\n", [("message", "x")]),
        (b"id: 7\nretry: 10\nother: z\ndata: x\n\n", [("message", "x")]),
        (b"\xef\xbb\xbfdata: x\n\n", [("message", "x")]),
        ("data: a\u2028b\x85c\n\n".encode(), [("message", "a\u2028b\x85c")]),
        (b"data: \xff\n\n", [("message", "\ufffd")]),
        (b"data: whole\n\ndata: cut\n", [("message", "whole")]),
        (b"data: cut", []),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_the_events_of_a_stream(stream: bytes, events: list[tuple[str, str]]) -> None:
    assert [(event.name, event.data) for event in read_events([stream])] == events


def test_an_id_holds_until_the_next_one() -> None:
    stream = b"data: a\n\nid: 7\ndata: b\n\ndata: c\n\nid: 8\x00\ndata: d\n\nid\ndata: e\n\n"
    assert [(event.data, event.last_id) for event in read_events([stream])] == [
        ("a", ""),
        ("b", "7"),
        ("c", "7"),
        ("d", "7"),
        ("e", ""),
    ]


def test_a_reader_may_set_its_own_bound() -> None:
    assert list(read_events([b"data: 123\n\n"], most_characters=10)) == [ServerEvent("message", "123")]
    with pytest.raises(EventTooLarge, match="10 characters"):
        list(read_events([b"data: 1234567890\n\n"], most_characters=10))


def test_an_event_is_given_as_soon_as_it_is_complete() -> None:
    given_so_far: list[bytes] = []

    def pieces():  # type: ignore[no-untyped-def]
        for piece in (b"data: 1\r", b"\n\r", b"\ndata: 2\n", b"\n"):
            given_so_far.append(piece)
            yield piece

    events = read_events(pieces())
    assert next(events).data == "1"
    assert len(given_so_far) == 2
    assert next(events).data == "2"


@pytest.mark.parametrize("endless", [b"x" * 100, b"data: " + b"x" * 100, b"data: x\n" * 10, b"data\n" * 10])
def test_neither_a_line_nor_an_event_grows_without_bound(endless: bytes) -> None:
    with pytest.raises(EventTooLarge):
        list(read_events((endless for _ in range(1000)), most_characters=1000))
