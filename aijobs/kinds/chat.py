"""The built-in kind `chat`: messages in, text out, one provider call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from marshmallow import RAISE, Schema, ValidationError, fields, validate, validates_schema

if TYPE_CHECKING:
    from aijobs.config import KindSettings
    from aijobs.kinds import Attempt

_ROLES = ("system", "developer", "user", "assistant")
# What a provider is asked for, under the name it has there.
_PASSED_ON = ("max_tokens", "temperature", "top_p", "stop", "seed")


class StrictFloat(fields.Float):
    """A number that was written as a number: "0.5" and true are not."""

    def _validated(self, value: Any) -> float:
        if isinstance(value, str | bool):
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


class MessageSchema(Schema):
    """One message of a conversation."""

    class Meta:
        unknown = RAISE

    role = fields.String(required=True, validate=validate.OneOf(_ROLES))
    content = fields.String(required=True, validate=validate.Length(min=1))


class PayloadSchema(Schema):
    """A chat payload: `messages`, or `prompt` for one user message. Only the kind's own models may be asked for."""

    class Meta:
        unknown = RAISE

    messages = fields.List(fields.Nested(MessageSchema), validate=validate.Length(min=1, max=1000))
    prompt = fields.String(validate=validate.Length(min=1))
    model = fields.String()
    max_tokens = fields.Integer(strict=True, validate=validate.Range(min=1, max=1_000_000))
    temperature = StrictFloat(validate=validate.Range(min=0, max=2))
    top_p = StrictFloat(validate=validate.Range(min=0, max=1))
    stop = fields.List(fields.String(validate=validate.Length(min=1, max=200)), validate=validate.Length(max=4))
    seed = fields.Integer(strict=True)

    def __init__(self, kind: KindSettings, options: Collection[str] = _PASSED_ON) -> None:
        """`options`: what the kind's provider can be asked for."""
        super().__init__()
        self._models = (kind.model, *kind.models)
        self._options = options

    @validates_schema
    def _asks_once(self, data: Mapping[str, Any], **_: object) -> None:
        if ("messages" in data) == ("prompt" in data):
            raise ValidationError("give either messages or prompt", field_name="messages")
        if "model" in data and data["model"] not in self._models:
            known = ", ".join(model for model in self._models if model)
            raise ValidationError(f"this kind offers: {known}", field_name="model")
        for name in _PASSED_ON:
            if name in data and name not in self._options:
                raise ValidationError("this kind's provider cannot be asked for that", field_name=name)


def run(attempt: Attempt) -> dict[str, Any]:
    """Ask the kind's provider once. The result has text, finish_reason, model and usage."""
    payload = attempt.payload
    answer = attempt.chat("chat", stream=True, **wanted(payload))
    return {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "model": answer.model,
        "usage": asdict(answer.usage),
    }


def wanted(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What a validated payload asks for."""
    messages = payload.get("messages") or [{"role": "user", "content": payload["prompt"]}]
    return {"messages": messages} | {name: payload[name] for name in ("model", *_PASSED_ON) if name in payload}
