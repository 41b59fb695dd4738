"""The kinds of job this process knows: what their payloads must look like, and what runs them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from marshmallow import Schema

from aijobs.config import KindSettings, Settings
from aijobs.domain.failures import Usage
from aijobs.errors import ConfigError
from aijobs.kinds import chat


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step brought: paid for now, or by an earlier attempt of the same job."""

    text: str
    finish_reason: str | None
    model: str | None
    usage: Usage


class Attempt(Protocol):
    """What a handler is given: one attempt of one job."""

    @property
    def payload(self) -> Any: ...

    @property
    def kind(self) -> KindSettings: ...

    def call(self, step: str, body: Mapping[str, Any]) -> Answer:
        """Send one request to the kind's provider, or return what an earlier attempt got for the same step."""
        ...


Handler = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job. `schema` is None when any payload will do; `run` turns an attempt into the job's result."""

    settings: KindSettings
    schema: Schema | None
    run: Handler

    @property
    def name(self) -> str:
        return self.settings.name


def load(settings: Settings) -> dict[str, Kind]:
    """The configured kinds by name. Handlers are imported only when first run: see `import_handlers`."""
    return {name: _kind(kind) for name, kind in settings.kinds.items()}


def import_handlers(kinds: Mapping[str, Kind]) -> None:
    """Import the users' handlers now. Raises ConfigError naming each that cannot be imported."""
    problems = []
    for kind in kinds.values():
        if kind.settings.handler is not None:
            try:
                _import(kind.settings.handler)
            except (ImportError, AttributeError) as error:
                problems.append(f"[kinds.{kind.name}] handler {kind.settings.handler!r}: {error}")
    if problems:
        raise ConfigError(problems)


def _kind(settings: KindSettings) -> Kind:
    if settings.handler is None:
        return Kind(settings, chat.PayloadSchema(settings), chat.run)
    path = settings.handler
    return Kind(settings, None, lambda attempt: _import(path)(attempt))


def _import(path: str) -> Handler:
    module, _, attribute = path.partition(":")
    handler: Handler = getattr(importlib.import_module(module), attribute)
    return handler
