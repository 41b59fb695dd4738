"""The kinds of job this process knows: what their payloads must look like, and what runs them.

Handlers of one's own are written with what this module offers: `handler`, `Policy`, and the errors that say what is to
follow.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from marshmallow import Schema

from aijobs.config import KindSettings, Settings
from aijobs.config_file import CHAT_OPTIONS
from aijobs.domain.failures import Usage
from aijobs.errors import ConfigError, OutputRejected, PermanentError, ProviderError, TransientError
from aijobs.kinds import chat, http
from aijobs.kinds.handlers import Handler, Policy, declared, handler, import_function, read_payload, with_policy

__all__ = [
    "Answer",
    "Attempt",
    "Kind",
    "OutputRejected",
    "PermanentError",
    "Policy",
    "ProviderError",
    "TransientError",
    "handler",
    "import_handlers",
    "import_what_there_is",
    "load",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step brought: paid for now, or by an earlier attempt of the same job.

    `value` is the answer of a provider that gives JSON and not text.
    """

    text: str
    finish_reason: str | None
    model: str | None
    usage: Usage
    value: Any = None


class Attempt(Protocol):
    """What a handler is given: one attempt of one job."""

    @property
    def payload(self) -> Any:
        """The job's payload, as the kind's schema reads it."""
        ...

    @property
    def kind(self) -> KindSettings: ...

    @property
    def number(self) -> int:
        """1 for the first attempt of the job."""
        ...

    @property
    def job_id(self) -> UUID: ...

    @property
    def deadline(self) -> float:
        """Seconds until the attempt must be over. A handler that goes on is interrupted, and given up."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: a cancel, a drain, a lost lease. Calls then stop by themselves."""
        ...

    def call(self, step: str, body: Mapping[str, Any], *, stream: bool = False) -> Answer:
        """Send one request, in the provider's own terms, to the kind's provider; once for each step and body.

        With `stream` the answer's text is shown as it comes, as by `emit`.

        If an earlier attempt has the answer to the same step and body, or the provider still has it, that is returned
        and nothing is paid. Raises ProviderError, which is best left alone: it says what is to follow. Raises
        ValueError for a step name that this attempt has used before.
        """
        ...

    def chat(
        self,
        step: str,
        *,
        messages: list[dict[str, str]],
        model: str | None = None,
        stream: bool = False,
        **options: Any,
    ) -> Answer:
        """As `call`, for a chat in terms that every provider understands: messages, max_tokens, temperature ..."""
        ...

    def progress(self, value: Any) -> None:
        """Show how far the job has come: any JSON value of up to 16 KiB. Raises ValueError."""
        ...

    def emit(self, text: str) -> None:
        """Show a piece of the output. Raises ValueError beyond 8 MiB."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job. `schema` is None when any payload will do; `run` turns an attempt into the job's result."""

    settings: KindSettings
    schema: Schema | None
    run: Handler

    @property
    def name(self) -> str:
        return self.settings.name

    def read(self, payload: Any) -> Any:
        """A stored payload as `run` gets it. Raises PermanentError."""
        return read_payload(self.schema, payload)


def load(settings: Settings) -> dict[str, Kind]:
    """The configured kinds by name. Handlers are not imported: see `import_handlers` and `import_what_there_is`."""
    return {name: _kind(kind, settings) for name, kind in settings.kinds.items()}


def import_handlers(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """The kinds with their handlers, for a worker. Raises ConfigError naming each that cannot be imported."""
    _make_working_directory_importable()
    imported, problems = {}, []
    for name, kind in kinds.items():
        try:
            imported[name] = _with_handler(kind)
        except (ImportError, AttributeError, TypeError) as error:
            problems.append(f"[kinds.{name}] handler {kind.settings.handler!r}: {error}")
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return imported


def import_what_there_is(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """The kinds with those handlers that can be imported, for a process that needs no more than their schemas.

    A web process may lack what the workers have; then the payloads of a kind are checked by the workers alone.
    """
    _make_working_directory_importable()
    found = dict(kinds)
    for name, kind in kinds.items():
        try:
            found[name] = _with_handler(kind)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything, and only the workers need it
            words = "payloads of kind %s are checked by the workers alone: %s: %s"
            log.warning(words, name, type(error).__name__, error)
    return found


def _kind(settings: KindSettings, all_settings: Settings) -> Kind:
    if settings.uses == "chat":
        provider = all_settings.providers.get(settings.provider or "")
        options = CHAT_OPTIONS[provider.adapter] if provider is not None else CHAT_OPTIONS["openai-chat"]
        return Kind(settings, chat.PayloadSchema(settings, options), chat.run)
    if settings.uses == "http":
        return Kind(settings, None, http.run)
    path = settings.handler or ""
    return Kind(settings, None, lambda attempt: import_function(path)(attempt))


def _with_handler(kind: Kind) -> Kind:
    """The kind with its handler imported, and with what the handler declares. Raises ConfigError."""
    if kind.settings.handler is None:
        return kind
    function = import_function(kind.settings.handler)
    if not callable(function):
        raise TypeError("it is no function")
    says = declared(function)
    if says is None:
        return replace(kind, run=function)
    if says.name != kind.name:
        raise ConfigError([f"[kinds.{kind.name}] handler {kind.settings.handler!r} declares itself for {says.name!r}."])
    return Kind(with_policy(kind.settings, says.policy), says.schema, function)


def _make_working_directory_importable() -> None:
    """Appended and never prepended, so that nothing of ours can be shadowed by it."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
