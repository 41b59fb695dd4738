"""The same request has the same key and fingerprint however it is spelled, and no other request has."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aijobs.domain.idempotency import HASH_VERSION, canonical_json, parse_key, request_hash
from aijobs.domain.strict_json import loads


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        ("  abc\t", "abc"),
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        ('"abc";x=1', "abc"),
        ('"abc"; x; y="a,b"', "abc"),
        ('"a b"', "a b"),
        ('"a;b"', "a;b"),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        ("a/b+c=d:e~f@g_h.i", "a/b+c=d:e~f@g_h.i"),
        ("{a}|#!", "{a}|#!"),
        ("k" * 255, "k" * 255),
        ('"' + "k" * 255 + '"', "k" * 255),
    ],
)
def test_a_key_is_read_bare_or_quoted(header: str, key: str) -> None:
    assert parse_key(header) == key


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        '""',
        '"abc',
        'abc"',
        '"a","b"',
        "a,b",
        "a, b",
        '"a,b"',
        '"a',
        '"":',
        '"abc" x',
        '"abc";',
        '"abc";X=1',
        r'"a\b"',
        "a b",
        "a;x=1",
        "a\\b",
        "k" * 256,
        '"' + "k" * 256 + '"',
        "caf\u00e9",
        "caf\u00c3\u00a9",
        '"caf\u00e9"',
        "a\x00b",
        "a\nb",
        '"a\tb"',
        "a\x7f",
        "abc\n",
        '"abc"\n',
    ],
)
def test_a_malformed_key_is_refused(header: str) -> None:
    with pytest.raises(ValueError, match=r"expected|not a quoted"):
        parse_key(header)


SAME = [
    [b'{"a":1,"b":2}', b'{"b":2,"a":1}', b' { "a" : 1 , "b" : 2 } '],
    [b'{"a":{"x":1,"y":[{"p":1,"q":2}]}}', b'{"a":{"y":[{"q":2,"p":1}],"x":1}}'],
    [b'"\\u00e9"', '"é"'.encode()],
    [b'"\\ud83d\\ude00"', '"\N{GRINNING FACE}"'.encode()],
    [b'"\\/"', b'"/"'],
    [b"1", b"1.0", b"1e0", b"1.000", b"10e-1", b"0.1e1"],
    [b"0", b"-0", b"0.0", b"-0.0", b"0e5", b"-0e-5"],
    [b"100", b"1e2", b"1E+2", b"100.0"],
    [b"12345678901234567890123", b"12345678901234567890123.0", b"1.2345678901234567890123e22"],
    [b"0.1", b"1e-1", b"0.10"],
    [b"-1.5", b"-15e-1"],
]
DIFFERENT = [
    [b"true", b"1", b'"1"', b'"true"', b"[1]", b"null"],
    [b"false", b"0", b"null", b'""', b"[]", b"{}"],
    [b"[1,2]", b"[2,1]", b"[[1,2]]", b"[1,[2]]"],
    [b"{}", b'{"a":null}', b'{"a":0}', b'{"a":{}}'],
    ['"\u00e9"'.encode(), '"e\u0301"'.encode()],
    [b"9007199254740993", b"9007199254740992", b"9007199254740993.5"],
    [b"0.1", b"0.1000000000000000055511151231257827"],
    [b"1e400", b"1e399", b"-1e400", b"1e-400"],
    [b'{"a":1,"b":2}', b'{"a":2,"b":1}', b'{"a":1}', b'[["a",1],["b",2]]'],
    [b'"1,2"', b'["1","2"]'],
]


@pytest.mark.parametrize("spellings", SAME)
def test_spelling_does_not_matter(spellings: list[bytes]) -> None:
    assert len({request_hash(loads(raw)) for raw in spellings}) == 1
    assert len({canonical_json(loads(raw)) for raw in spellings}) == 1


@pytest.mark.parametrize("values", DIFFERENT)
def test_values_do(values: list[bytes]) -> None:
    assert len({request_hash(loads(raw)) for raw in values}) == len(values)


def test_the_fingerprint_is_a_version_and_a_digest_that_no_release_may_change() -> None:
    raw = '{"kind": "chat", "payload": {"n": [1.50, -0, 1e3, "é\\n\\u0007"], "b": true}}'
    text = '{"kind":"chat","payload":{"b":true,"n":[1.5,0,1000,"é\\n\\u0007"]}}'
    assert canonical_json(loads(raw.encode())) == text
    fingerprint = request_hash(loads(raw.encode()))
    assert fingerprint == bytes([HASH_VERSION]) + hashlib.sha256(text.encode()).digest()
    assert fingerprint.hex() == "01a459144b92db090d4b357377a398f8d182ee367ee0aa168bd26f821b01b91121"


def test_names_are_sorted_by_code_point() -> None:
    astral, private = "\N{GRINNING FACE}", "\ue000"
    assert canonical_json({astral: 1, private: 2}) == f'{{"{private}":2,"{astral}":1}}'


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text("ab\N{PILE OF POO}"), children, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_the_canonical_text_reads_back_as_the_value(value: Any) -> None:
    again = loads(canonical_json(value).encode())
    assert again == value
    assert canonical_json(again) == canonical_json(value)


def test_what_is_not_json_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        canonical_json([1.5])
    with pytest.raises(TypeError):
        canonical_json({"a": (1, 2)})


def test_numbers_are_written_out_exactly() -> None:
    assert canonical_json([Decimal("1e3"), Decimal("-0.00"), Decimal("1.2300"), 10**30]) == (
        "[1000,0,1.23,1000000000000000000000000000000]"
    )
