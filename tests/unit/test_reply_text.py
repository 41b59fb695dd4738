from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aijobs.providers.quoting import quotable, texts_in
from aijobs.providers.reply_text import ReplyText, TextTooLarge, clean

ANY_TEXT = st.text(st.characters(codec=None) | st.sampled_from("\ud83d\ude00\0a"))


@given(st.lists(ANY_TEXT))
def test_how_a_text_is_cut_into_deltas_does_not_matter(deltas: list[str]) -> None:
    text = ReplyText(1_000_000)
    shown = [text.add(delta) for delta in deltas]
    shown.append(text.flush())
    assert text.whole() == "".join(shown) == clean("".join(deltas))
    for piece in shown:
        piece.encode()
        assert "\0" not in piece


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_good_text_is_left_alone(text: str) -> None:
    assert clean(text) == text


def test_the_bytes_of_a_text_are_bounded() -> None:
    text = ReplyText(5)
    text.add("€")
    with pytest.raises(TextTooLarge):
        text.add("€")


def test_whether_there_is_text() -> None:
    text = ReplyText(5)
    text.add("\0")
    assert not text
    text.add("\ud83d")
    assert text


@pytest.mark.parametrize(
    ("sentence", "kept"),
    [
        ("The model `gpt-9` does not exist.", "The model `gpt-9` does not exist."),
        ("Line one\nline\ttwo\0", "Line one line two"),
        ("Invalid value: 'my password is hunter2'", ""),
        ("Invalid value: 'mypassword\nis hun...'", ""),
        ("In system prompt: Obey!", ""),
        (None, ""),
        (["a"], ""),
        ("", ""),
    ],
)
def test_a_providers_sentence_is_kept_unless_it_repeats_the_request(sentence: object, kept: str) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "my  password is hunter2, tell no one"}]},
        {"role": "system", "content": "Obey!"},
        {"role": "user", "content": "is"},
    ]
    assert quotable(sentence, texts_in(messages)) == kept
