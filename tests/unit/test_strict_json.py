"""A stranger's JSON is read exactly or refused with one error."""

from __future__ import annotations

import json
import threading
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aijobs.domain.strict_json import MOST_DEPTH, MalformedJson, loads

REFUSED = {
    "empty": b"",
    "blank": b" \n",
    "two values": b"1 2",
    "trailing comma": b"[1,]",
    "single quotes": b"{'a':1}",
    "NaN": b"NaN",
    "Infinity in an array": b"[Infinity]",
    "minus Infinity": b'{"a":-Infinity}',
    "a name twice": b'{"a":1,"a":1}',
    "a name twice, escaped once": b'{"a":1,"\\u0061":2}',
    "a name twice, deep": b'[{"b":{"a":1,"a":2}}]',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-16 without mark": '{"a":1}'.encode("utf-16-le"),
    "UTF-32": "{}".encode("utf-32"),
    "latin-1": '"é"'.encode("latin-1"),
    "a surrogate in CESU-8": b'"\xed\xa0\x80"',
    "overlong UTF-8": b'"\xc0\x80"',
    "NUL in a string": b'"a\\u0000b"',
    "NUL in a name": b'{"\\u0000":1}',
    "NUL raw": b'"a\x00b"',
    "a control character raw": b'"a\nb"',
    "a lone high surrogate": b'"\\ud800"',
    "a lone low surrogate": b'["\\udfff"]',
    "a surrogate in a name": b'{"x\\ud83d":1}',
    "a reversed pair": b'"\\ude00\\ud83d"',
    "too deep": b"[" * (MOST_DEPTH + 1) + b"]" * (MOST_DEPTH + 1),
    "far too deep": b"[" * 100_000,
    "far too deep, objects": b'{"a":' * 100_000,
    "a long integer": b"1" * 1001,
    "a very long integer": b"[" + b"9" * 500_000 + b"]",
    "a long fraction": b"0." + b"1" * 1000,
    "a large exponent": b"1e401",
    "a small exponent": b"1E-401",
    "an exponent of many digits": b"1e" + b"9" * 100_000,
    "a leading zero": b"01",
    "hexadecimal": b"0x10",
    "no digits after the point": b"1.",
    "an unfinished escape": b'"\\u12"',
    "a comment": b"1 // one",
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_plain_json_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedJson):
        loads(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"b":[true,null,"\\u00e9"],"a":{}}', {"b": [True, None, "é"], "a": {}}),
        (b"1" * 1000, int("1" * 1000)),
        (b"-" + b"1" * 1000, -int("1" * 1000)),
        (b"1e400", Decimal("1e400")),
        (b"1e00000000000400", Decimal("1e400")),
        (b"0.10", Decimal("0.10")),
        (b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        (b" [ ] ", []),
        (b"[" * MOST_DEPTH + b"]" * MOST_DEPTH, json.loads("[" * MOST_DEPTH + "]" * MOST_DEPTH)),
    ],
)
def test_plain_json_is_read(raw: bytes, value: object) -> None:
    assert loads(raw) == value


def test_no_digit_of_a_number_is_lost() -> None:
    assert str(loads(b"0.12345678901234567890123456789")) == "0.12345678901234567890123456789"


def test_a_body_full_of_exponents_is_refused_before_it_is_written_out() -> None:
    raw = b"[" + b",".join([b"1e400"] * 170_000) + b"]"
    with pytest.raises(MalformedJson, match="together"):
        loads(raw)


def test_many_ordinary_small_numbers_are_read() -> None:
    assert len(loads(b"[" + b",".join([b"1.5e-05"] * 60_000) + b"]")) == 60_000


def test_deep_nesting_is_refused_in_a_thread_as_well() -> None:
    """The stack of a thread is smaller than that of the process."""
    outcome: list[type[BaseException]] = []

    def read() -> None:
        try:
            loads(b'[{"a":' * 200_000)
        except MalformedJson as error:
            outcome.append(type(error))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert outcome == [MalformedJson]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        value = loads(raw)
    except MalformedJson:
        return
    assert value == json.loads(raw, parse_float=Decimal)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text("abc\N{PILE OF POO}"), children, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_every_value_that_can_be_stored_is_read(value: object) -> None:
    assert loads(json.dumps(value).encode()) == value
