"""What a chat payload may be."""

from __future__ import annotations

from typing import Any

import pytest
from marshmallow import ValidationError

from aijobs.config_file import KindSettings
from aijobs.kinds.chat import PayloadSchema, wanted

KIND = KindSettings("chat", uses="chat", provider="p", model="m", models=("n",))


@pytest.mark.parametrize(
    ("payload", "at_fault"),
    [
        ({}, "messages"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "messages"),
        ({"prompt": ""}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages"),
        ({"prompt": "a", "temperature": "0.5"}, "temperature"),
        ({"prompt": "a", "temperature": True}, "temperature"),
        ({"prompt": "a", "temperature": 2.1}, "temperature"),
        ({"prompt": "a", "max_tokens": 1.0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "model": "another"}, "model"),
        ({"prompt": "a", "stream": True}, "stream"),
    ],
)
def test_a_payload_that_is_refused_says_which_field(payload: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(ValidationError) as refused:
        PayloadSchema(KIND).load(payload)
    assert list(refused.value.messages_dict) == [at_fault]


def test_a_prompt_is_one_user_message_and_only_what_was_given_is_passed_on() -> None:
    payload = PayloadSchema(KIND).load({"prompt": "Hi", "temperature": 0, "model": "n"})
    assert wanted(payload) == {
        "model": "n",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0,
    }


def test_what_the_provider_cannot_be_asked_for_is_refused() -> None:
    with pytest.raises(ValidationError) as refused:
        PayloadSchema(KIND, {"max_tokens"}).load({"prompt": "a", "seed": 1, "max_tokens": 5})
    assert list(refused.value.messages_dict) == ["seed"]
