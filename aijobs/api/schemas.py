"""What a request for a job must look like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from marshmallow import Schema, ValidationError, fields, validate

MOST_METADATA_PAIRS = 16
MOST_METADATA_NAME = 64
MOST_METADATA_VALUE = 512
QUEUE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
# More than anybody corrects at a time; a body can hold a hundred thousand.
MOST_ERRORS = 50
MOST_POINTER_CHARACTERS = 300
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)


class Moment(fields.Field[str]):
    """An RFC 3339 time with an offset, as the same moment in UTC. Digits beyond microseconds are dropped."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str) or not _MOMENT.fullmatch(value):
            raise ValidationError("Not an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z.")
        try:
            moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            raise ValidationError("There is no such time.") from None
        if not 2000 <= moment.year <= 9998:
            raise ValidationError("Must lie in the years 2000 to 9998.")
        return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"


class Metadata(fields.Field[dict[str, str]]):
    """A few short texts by name."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise ValidationError("Not an object.")
        if len(value) > MOST_METADATA_PAIRS:
            raise ValidationError(f"May hold {MOST_METADATA_PAIRS} pairs at most.")
        errors = {name: [fault] for name, text in value.items() if (fault := _metadata_fault(name, text)) is not None}
        if errors:
            raise ValidationError(errors)
        return value


def _metadata_fault(name: str, text: Any) -> str | None:
    if not 1 <= len(name) <= MOST_METADATA_NAME:
        return f"The name must have 1 to {MOST_METADATA_NAME} characters."
    if not isinstance(text, str):
        return "Not a string."
    if len(text) > MOST_METADATA_VALUE:
        return f"May have {MOST_METADATA_VALUE} characters at most."
    return None


class JobRequest(Schema):
    """The body of a create. The payload is judged by its kind. Unknown fields are refused."""

    kind = fields.String(required=True)
    payload = fields.Dict(required=True)
    queue = fields.String(load_default="default", validate=validate.Regexp(QUEUE.pattern + r"\Z"))
    priority = fields.Integer(strict=True, load_default=0, validate=validate.Range(-100, 100))
    run_at = Moment(load_default=None, allow_none=True)
    expires_at = Moment(load_default=None, allow_none=True)
    max_attempts = fields.Integer(strict=True, load_default=None, validate=validate.Range(min=1))
    on_unknown = fields.String(load_default=None, validate=validate.OneOf(("retry", "hold", "fail")))
    max_unknown_retries = fields.Integer(strict=True, load_default=None, validate=validate.Range(min=0))
    user_id = fields.String(load_default=None, allow_none=True, validate=validate.Length(1, 255))
    metadata = Metadata(load_default=dict)
    webhook_url = fields.String(load_default=None, allow_none=True)


def located(messages: Any, pointer: str = "#") -> Iterator[dict[str, str]]:
    """marshmallow's nested messages as one flat error for each, with a JSON Pointer to where it is."""
    if isinstance(messages, Mapping):
        for name, below in messages.items():
            yield from located(below, pointer if name == "_schema" else f"{pointer}/{_escaped(name)}")
    elif isinstance(messages, list | tuple):
        for message in messages:
            yield from located(message, pointer)
    else:
        yield {"pointer": pointer[:MOST_POINTER_CHARACTERS], "detail": str(messages)}


def _escaped(name: object) -> str:
    """A name as one part of a JSON Pointer in a URI fragment."""
    return quote(str(name).replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@")
