"""What users write: functions that turn an attempt into a job's result."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from marshmallow import EXCLUDE, Schema, ValidationError

from aijobs.errors import ConfigError, PermanentError

if TYPE_CHECKING:
    from aijobs.config import KindSettings

Handler = Callable[[Any], Any]
_Decorated = TypeVar("_Decorated", bound=Handler)
_DECLARED = "__aijobs_handler__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a handler's kind does unless its section of the configuration says otherwise; None leaves the default.

    `on_unknown` is retry, hold or fail. The other names and units are those of `[kinds.NAME]`.
    """

    on_unknown: str | None = None
    max_unknown_retries: int | None = None
    max_attempts: int | None = None
    attempt_seconds: float | None = None
    backoff_seconds: float | None = None
    backoff_cap_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """What a handler says of itself."""

    name: str
    schema: Schema | None
    policy: Policy


def handler(
    name: str, *, schema: type[Schema] | Schema | None = None, policy: Policy | None = None
) -> Callable[[_Decorated], _Decorated]:
    """Declare a function to be the handler of the kind `name`, for `handler = "module:function"` in `[kinds.NAME]`.

    A payload is held against `schema` (marshmallow) when its job is created, and again by the worker; the handler gets
    what the schema makes of it. Without one any JSON object will do. Raises TypeError for a schema that is none.
    """
    made = schema() if isinstance(schema, type) and issubclass(schema, Schema) else schema
    if made is not None and not isinstance(made, Schema):
        raise TypeError(f"the schema of handler {name!r} must be a marshmallow Schema, not {type(made).__name__}")

    def declare(function: _Decorated) -> _Decorated:
        setattr(function, _DECLARED, Declared(name, made, policy or Policy()))
        return function

    return declare


def declared(function: Handler) -> Declared | None:
    """What the function says of itself; None for one that says nothing."""
    found = getattr(function, _DECLARED, None)
    return found if isinstance(found, Declared) else None


def import_function(path: str) -> Handler:
    """The function of `module:function`. Raises ImportError, AttributeError, and whatever the module raises."""
    module, _, attribute = path.partition(":")
    function: Handler = getattr(importlib.import_module(module), attribute)
    return function


def with_policy(settings: KindSettings, policy: Policy) -> KindSettings:
    """The kind's settings, with the policy for whatever its section leaves out. Raises ConfigError."""
    wished = {item.name: getattr(policy, item.name) for item in fields(policy)}
    made = replace(
        settings, **{name: value for name, value in wished.items() if value is not None and name not in settings.given}
    )
    problems = made.problems()
    if problems:
        raise ConfigError(problems)
    return made


def read_payload(schema: Schema | None, payload: Any) -> Any:
    """A stored payload as the schema reads it. Raises PermanentError, which names fields and tells no values.

    A worker of one release may meet a job of the next: a field that it does not know is left out, not refused.
    """
    if schema is None:
        return payload
    try:
        return schema.load(payload, unknown=EXCLUDE)
    except ValidationError as error:
        messages: Mapping[str, Any] = error.messages_dict
        at_fault = ", ".join(sorted(map(str, messages)))
        raise PermanentError("invalid_payload", f"not a payload of this kind: {at_fault}") from None
