"""The TOML file of providers and kinds."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

ADAPTERS = ("openai-chat",)
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_HANDLER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
# Without a maximum of its own a kind tries three times, and a job may ask for up to ten.
DEFAULT_MAX_ATTEMPTS = 3
MOST_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One `[providers.NAME]`. Seconds are per connection and per read; the attempt's deadline bounds the whole."""

    name: str
    adapter: str
    base_url: str
    api_key_env: str | None = None
    connect_seconds: float = 5.0
    read_seconds: float = 60.0
    proxy: str | None = None
    max_reply_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KindSettings:
    """One `[kinds.NAME]`: what runs it, and its policy."""

    name: str
    uses: str | None = None
    handler: str | None = None
    provider: str | None = None
    model: str | None = None
    models: tuple[str, ...] = ()
    on_unknown: str | None = None
    max_unknown_retries: int = 1
    max_attempts: int | None = None
    attempt_seconds: float | None = None
    backoff_seconds: float = 2.0
    backoff_cap_seconds: float = 300.0

    @property
    def default_max_attempts(self) -> int:
        return DEFAULT_MAX_ATTEMPTS if self.max_attempts is None else self.max_attempts

    @property
    def maximum_attempts(self) -> int:
        """The most a job of this kind may ask for."""
        return MOST_ATTEMPTS if self.max_attempts is None else self.max_attempts


_Table = TypeVar("_Table", ProviderSettings, KindSettings)


def read_config_file(
    path: Path | None, problems: list[str]
) -> tuple[dict[str, ProviderSettings], dict[str, KindSettings]]:
    """The providers and kinds of the file, by name; what is wrong with them is added to `problems`."""
    if path is None:
        return {}, {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"AIJOBS_CONFIG={str(path)!r} cannot be read: {error}.")
        return {}, {}
    for section in sorted(document.keys() - {"providers", "kinds"}):
        problems.append(f"{path}: unknown section [{section}]; expected [providers.NAME] and [kinds.NAME].")
    providers = _tables(document, "providers", ProviderSettings, problems)
    kinds = _tables(document, "kinds", KindSettings, problems)
    for provider in providers.values():
        _check_provider(provider, problems)
    kinds = {name: _with_defaults(kind) for name, kind in kinds.items()}
    for kind in kinds.values():
        _check_kind(kind, providers, problems)
    return providers, kinds


def _tables(document: Mapping[str, Any], section: str, into: type[_Table], problems: list[str]) -> dict[str, _Table]:
    tables: dict[str, _Table] = {}
    given = document.get(section, {})
    if not isinstance(given, dict):
        problems.append(f"[{section}] must hold tables like [{section}.NAME].")
        return {}
    for name, table in given.items():
        where = f"[{section}.{name}]"
        if not _NAME.fullmatch(name):
            problems.append(f"{where}: a name has lower-case letters, digits, '_', '.' and '-', 63 at most.")
        elif not isinstance(table, dict):
            problems.append(f"{where} must be a table.")
        else:
            values = _values(table, into, where, problems)
            if values is not None:
                tables[name] = into(name=name, **values)
    return tables


def _values(table: Mapping[str, Any], into: type[_Table], where: str, problems: list[str]) -> dict[str, Any] | None:
    fields = {item.name: item for item in dataclasses.fields(into) if item.name != "name"}
    before = len(problems)
    for key in sorted(table.keys() - fields.keys()):
        problems.append(f"{where}: unknown key {key!r}; known are: {', '.join(sorted(fields))}.")
    for key, item in fields.items():
        if key not in table and item.default is dataclasses.MISSING:
            problems.append(f"{where}: {key} is missing.")
    values = {}
    for key, value in table.items():
        if key in fields:
            try:
                values[key] = _typed(value, str(fields[key].type))
            except ValueError as error:
                problems.append(f"{where}: {key} = {value!r}: {error}.")
    return values if len(problems) == before else None


def _typed(value: Any, annotation: str) -> Any:
    """The value as the field's type, or ValueError with what is expected."""
    wanted = annotation.removesuffix(" | None")
    if wanted == "str" and isinstance(value, str) and value:
        return value
    if wanted == "int" and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "float" and is_number and math.isfinite(value) and value > 0:
        return float(value)
    if wanted.startswith("tuple") and isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    words = {"str": "some text", "int": "a whole number, 0 or more", "float": "a number above 0"}
    raise ValueError(f"expected {words.get(wanted, 'a list of texts')}")


def _check_provider(provider: ProviderSettings, problems: list[str]) -> None:
    where = f"[providers.{provider.name}]"
    if provider.adapter not in ADAPTERS:
        problems.append(f"{where}: adapter {provider.adapter!r} is not one of: {', '.join(ADAPTERS)}.")
    for key, url in (("base_url", provider.base_url), ("proxy", provider.proxy)):
        if url is not None and not _is_plain_url(url, credentials=key == "proxy"):
            problems.append(f"{where}: {key} must be an http or https URL with a host, without credentials or query.")
    if provider.max_reply_bytes < 1024:
        problems.append(f"{where}: max_reply_bytes must be at least 1024.")


def _is_plain_url(url: str, *, credentials: bool) -> bool:
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
    return plain and port_is_valid and (credentials or "@" not in parts.netloc)


def _with_defaults(kind: KindSettings) -> KindSettings:
    """`[kinds.chat]` needs no `uses`; and chat repeats an unknown outcome once, where other kinds ask a person."""
    if kind.uses is None and kind.handler is None and kind.name == "chat":
        kind = dataclasses.replace(kind, uses="chat")
    if kind.on_unknown is None:
        kind = dataclasses.replace(kind, on_unknown="retry" if kind.uses == "chat" else "hold")
    return kind


def _check_kind(kind: KindSettings, providers: Mapping[str, ProviderSettings], problems: list[str]) -> None:
    where = f"[kinds.{kind.name}]"
    if (kind.uses is None) == (kind.handler is None):
        problems.append(f'{where}: give either uses = "chat" or handler = "module:function".')
    if kind.uses not in (None, "chat"):
        problems.append(f'{where}: uses = {kind.uses!r} is unknown; the built-in kind is "chat".')
    if kind.handler is not None and not _HANDLER.fullmatch(kind.handler):
        problems.append(f'{where}: handler = {kind.handler!r} is not of the form "module:function".')
    if kind.uses == "chat" and (kind.provider is None or kind.model is None):
        problems.append(f"{where}: a chat kind needs provider and model.")
    if kind.provider is not None and kind.provider not in providers:
        known = ", ".join(sorted(providers)) or "none"
        problems.append(f"{where}: provider {kind.provider!r} is not configured; configured are: {known}.")
    if kind.on_unknown not in ("retry", "hold", "fail"):
        problems.append(f"{where}: on_unknown = {kind.on_unknown!r} is not one of: retry, hold, fail.")
    if kind.max_attempts is not None and not 1 <= kind.max_attempts <= MOST_ATTEMPTS:
        problems.append(f"{where}: max_attempts must be from 1 to {MOST_ATTEMPTS}.")
    if kind.max_unknown_retries > MOST_ATTEMPTS:
        problems.append(f"{where}: max_unknown_retries must be from 0 to {MOST_ATTEMPTS}.")
