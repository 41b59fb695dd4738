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

# The adapters, and what a chat may ask of each beside model and messages.
CHAT_OPTIONS: dict[str, frozenset[str]] = {
    "openai-chat": frozenset({"max_tokens", "temperature", "top_p", "stop", "seed"}),
    "openai-responses": frozenset({"max_tokens", "temperature", "top_p"}),
    "anthropic": frozenset({"max_tokens", "temperature", "top_p", "stop"}),
    "http": frozenset(),
}
ADAPTERS = tuple(CHAT_OPTIONS)
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_HANDLER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
# Without a maximum of its own a kind tries three times, and a job may ask for up to ten.
DEFAULT_MAX_ATTEMPTS = 3
MOST_ATTEMPTS = 10
# Less is not even enough to import a module or two.
LEAST_MEMORY_MIB = 64
MOST_MARGIN_PERCENT = 10_000


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
    # For how long after a request the provider is asked what became of it, where it can be asked.
    ask_seconds: float = 600.0
    # openai-chat: have completions stored at the provider, so that a lost one can be found again.
    stored: bool = False
    # openai-responses: run at the provider in the background, so that a lost answer can be fetched.
    background: bool = True
    # anthropic: the version of its API, and what a chat that names no max_tokens may generate.
    api_version: str = "2023-06-01"
    default_max_tokens: int = 4096
    # http: the statuses of a success; what must stand where in its body; where the result is; the header of our key.
    success_statuses: tuple[int, ...] = (200,)
    success_path: str | None = None
    success_values: tuple[str, ...] = ()
    result_path: str | None = None
    dedupe_header: str | None = None


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
    # Run only in processes with one slot, which `aijobs work --isolated N` forks, and within so much memory.
    isolate: bool = False
    memory_mib: int | None = None
    # What an accepted result costs its tenant: a price, or with a margin (0 or more) what its calls cost. Until then
    # `reserve_micros` is kept aside; without it the price, or what the request may cost at most.
    price_micros: int | None = None
    margin_percent: int | None = None
    reserve_micros: int | None = None
    on_cancel: str = "release"
    # The keys that the section has: a handler's own policy speaks where it says nothing. Not a key itself.
    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)

    @property
    def default_max_attempts(self) -> int:
        return DEFAULT_MAX_ATTEMPTS if self.max_attempts is None else self.max_attempts

    @property
    def maximum_attempts(self) -> int:
        """The most a job of this kind may ask for."""
        return MOST_ATTEMPTS if self.max_attempts is None else self.max_attempts

    @property
    def tariff(self) -> str:
        """none, fixed or metered. A reservation without a price is for what the calls cost."""
        if self.price_micros is not None:
            return "fixed"
        return "none" if self.margin_percent is None and self.reserve_micros is None else "metered"

    def problems(self) -> list[str]:
        """What is wrong with the policy."""
        where, found = f"[kinds.{self.name}]", []
        if self.on_unknown not in ("retry", "hold", "fail"):
            found.append(f"{where}: on_unknown = {self.on_unknown!r} is not one of: retry, hold, fail.")
        if self.max_attempts is not None and not 1 <= self.max_attempts <= MOST_ATTEMPTS:
            found.append(f"{where}: max_attempts must be from 1 to {MOST_ATTEMPTS}.")
        if not 0 <= self.max_unknown_retries <= MOST_ATTEMPTS:
            found.append(f"{where}: max_unknown_retries must be from 0 to {MOST_ATTEMPTS}.")
        return found + self._problems_of_money(where)

    def _problems_of_money(self, where: str) -> list[str]:
        found = []
        if self.price_micros is not None and self.margin_percent is not None:
            found.append(f"{where}: price_micros and margin_percent exclude each other.")
        if None not in (self.price_micros, self.reserve_micros) and self.price_micros > self.reserve_micros:  # type: ignore[operator]
            found.append(f"{where}: price_micros is more than reserve_micros, and no more can be charged.")
        if (self.margin_percent or 0) > MOST_MARGIN_PERCENT:
            found.append(f"{where}: margin_percent must be from 0 to {MOST_MARGIN_PERCENT}.")
        if self.tariff == "metered" and self.reserve_micros is None and self.uses != "chat":
            found.append(f"{where}: only a chat's reservation follows from its request: give reserve_micros.")
        if self.on_cancel not in ("release", "charge_delivered"):
            found.append(f"{where}: on_cancel = {self.on_cancel!r} is not one of: release, charge_delivered.")
        return found


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
                tables[name] = into(name=name, **values, **_given(into, values))
    return tables


def _given(into: type[_Table], values: Mapping[str, Any]) -> dict[str, Any]:
    return {"given": frozenset(values)} if into is KindSettings else {}


def _values(table: Mapping[str, Any], into: type[_Table], where: str, problems: list[str]) -> dict[str, Any] | None:
    fields = {item.name: item for item in dataclasses.fields(into) if item.name not in ("name", "given")}
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
    if wanted == "bool" and isinstance(value, bool):
        return value
    if wanted == "int" and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "float" and is_number and math.isfinite(value) and value > 0:
        return float(value)
    if wanted == "tuple[int, ...]" and isinstance(value, list) and all(type(item) is int for item in value):
        return tuple(value)
    if (
        wanted == "tuple[str, ...]"
        and isinstance(value, list)
        and all(isinstance(item, str) and item for item in value)
    ):
        return tuple(value)
    words = {
        "str": "some text",
        "int": "a whole number, 0 or more",
        "float": "a number above 0",
        "bool": "true or false",
    }
    many = "a list of whole numbers" if "int" in wanted else "a list of texts"
    raise ValueError(f"expected {words.get(wanted, many)}")


def _check_provider(provider: ProviderSettings, problems: list[str]) -> None:
    where = f"[providers.{provider.name}]"
    if provider.adapter not in ADAPTERS:
        problems.append(f"{where}: adapter {provider.adapter!r} is not one of: {', '.join(ADAPTERS)}.")
    for key, url in (("base_url", provider.base_url), ("proxy", provider.proxy)):
        if url is not None and not _is_plain_url(url, credentials=key == "proxy"):
            problems.append(f"{where}: {key} must be an http or https URL with a host, without credentials or query.")
    if provider.dedupe_header is not None and not _HEADER.fullmatch(provider.dedupe_header):
        problems.append(f"{where}: dedupe_header {provider.dedupe_header!r} is no name of a header.")
    if not all(200 <= status <= 299 for status in provider.success_statuses):
        problems.append(f"{where}: success_statuses must be from 200 to 299.")
    if (provider.success_path is None) != (not provider.success_values):
        problems.append(f"{where}: success_path and success_values go together.")
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
        problems.append(f'{where}: give either uses = "chat", uses = "http" or handler = "module:function".')
    if kind.uses not in (None, "chat", "http"):
        problems.append(f'{where}: uses = {kind.uses!r} is unknown; the built-in kinds are "chat" and "http".')
    if kind.handler is not None and not _HANDLER.fullmatch(kind.handler):
        problems.append(f'{where}: handler = {kind.handler!r} is not of the form "module:function".')
    if kind.uses == "chat" and (kind.provider is None or kind.model is None):
        problems.append(f"{where}: a chat kind needs provider and model.")
    provider = providers.get(kind.provider or "")
    adapter = None if provider is None else provider.adapter
    if kind.uses == "http" and (kind.provider is None or adapter not in ("http", None)):
        problems.append(f'{where}: an http kind needs a provider whose adapter is "http".')
    if kind.uses == "chat" and adapter == "http":
        problems.append(
            f"{where}: a chat kind needs a provider that can be asked for a chat; {kind.provider!r} is not."
        )
    if kind.provider is not None and kind.provider not in providers:
        known = ", ".join(sorted(providers)) or "none"
        problems.append(f"{where}: provider {kind.provider!r} is not configured; configured are: {known}.")
    problems += kind.problems()
    if kind.isolate and kind.handler is None:
        problems.append(f"{where}: only a handler can be isolated.")
    if kind.memory_mib is not None and (not kind.isolate or kind.memory_mib < LEAST_MEMORY_MIB):
        problems.append(f"{where}: memory_mib needs isolate = true, and must be at least {LEAST_MEMORY_MIB}.")
