"""Every setting, read once and judged at start: the only reader of the environment.

A setting is a row of SETTINGS; providers and kinds come from the TOML file that AIJOBS_CONFIG names. All problems are
reported together, each in a sentence that names what to change.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, cast

from aijobs.config_file import KindSettings, ProviderSettings, read_config_file
from aijobs.errors import ConfigError

__all__ = ["CLIENT_SETTINGS", "SETTINGS", "ClientSettings", "KindSettings", "ProviderSettings", "Setting", "Settings"]


_DIGITS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: the variable, the attribute it becomes, how its text is read, and what it is for.

    `default` is shown in the documentation; `parse` raises ValueError with what is expected.
    """

    variable: str
    attribute: str
    parse: Callable[[str], Any]
    default: Any
    help: str
    shown_default: str | None = None
    secret: bool = False  # its value is shown nowhere


def _text(text: str) -> str:
    return text


def _path(text: str) -> Path:
    return Path(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and 0 < value <= 86400 * 30):
        raise ValueError("expected a number of seconds above 0")
    return value


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _DIGITS.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(text)

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected one of: {', '.join(words)}")
        return text

    return parse


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not _DIGITS.fullmatch(port) or not 0 < int(port) < 65536:
        raise ValueError("expected host:port")
    return host.strip("[]"), int(port)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _keys(text: str) -> tuple[str, ...]:
    keys = _listed(text)
    if not keys or min(map(len, keys)) < 16:
        raise ValueError("expected keys of 16 characters or more, separated by commas")
    return keys


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(item) for item in _listed(text))
    except ValueError:
        raise ValueError("expected networks such as 10.1.0.0/16, separated by commas") from None


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "AIJOBS_DATABASE_URL",
        "database_url",
        _text,
        None,
        "libpq DSN of the database, several hosts allowed",
        "required",
    ),
    Setting(
        "AIJOBS_LISTEN_URL",
        "listen_url",
        _text,
        None,
        "direct DSN for LISTEN when the other leads through a pooler",
        "same",
    ),
    Setting(
        "AIJOBS_CONFIG", "config_path", _path, None, "TOML file with `[providers.NAME]` and `[kinds.NAME]`", "none"
    ),
    Setting(
        "AIJOBS_DATA_DIR",
        "data_dir",
        _path,
        Path(".aijobs"),
        "where paid answers wait for the database, and `aijobs dev` keeps its own",
        "`./.aijobs`",
    ),
    Setting(
        "AIJOBS_PGBIN",
        "pgbin",
        _path,
        None,
        "PostgreSQL binaries that `aijobs dev` runs",
        "the `embedded` extra, else PATH",
    ),
    Setting("AIJOBS_PROCESSES", "processes", _whole(1, 1000), 2, "worker processes"),
    Setting("AIJOBS_THREADS", "threads", _whole(1, 1000), 8, "job slots in each worker process"),
    Setting(
        "AIJOBS_LEASE_SECONDS", "lease_seconds", _seconds, 180.0, "how long a worker owns a job without saying so again"
    ),
    Setting(
        "AIJOBS_HEARTBEAT_SECONDS",
        "heartbeat_seconds",
        _seconds,
        None,
        "how often leases are extended; a third of the lease at most",
        "lease / 4",
    ),
    Setting(
        "AIJOBS_ATTEMPT_SECONDS",
        "attempt_seconds",
        _seconds,
        90.0,
        "deadline of one attempt, unless its kind says otherwise",
    ),
    Setting(
        "AIJOBS_POLL_SECONDS",
        "poll_seconds",
        _seconds,
        5.0,
        "how often an idle worker looks for jobs that no hint told it of",
    ),
    Setting(
        "AIJOBS_REAP_SECONDS",
        "reap_seconds",
        _seconds,
        None,
        "how often expired leases are looked for, by one process of the fleet",
        "poll",
    ),
    Setting(
        "AIJOBS_DRAIN_SECONDS",
        "drain_seconds",
        _seconds,
        None,
        "how long running attempts may go on after SIGTERM",
        "attempt + 10",
    ),
    Setting("AIJOBS_STATSD", "statsd", _address, None, "`host:port` of StatsD", "off"),
    Setting("AIJOBS_STATSD_PREFIX", "statsd_prefix", _text, "aijobs", "first part of every metric's name"),
    Setting(
        "AIJOBS_AUTH",
        "auth",
        _one_of("keys", "open"),
        "keys",
        "`keys` (Bearer API key) or `open` (one tenant, this machine only)",
    ),
    Setting(
        "AIJOBS_SECRET_KEYS",
        "secret_keys",
        _keys,
        (),
        "what signs stream tokens: keys of 16 characters or more, by commas; the first signs, all verify",
        "none; `aijobs dev` makes one",
        secret=True,
    ),
    Setting(
        "AIJOBS_WEBHOOKS_ALLOW",
        "webhooks_allow",
        _networks,
        (),
        "private networks that webhooks may go to all the same, by commas",
        "none",
    ),
    Setting(
        "AIJOBS_DEMO_PAGE",
        "demo_page",
        _one_of("on", "off"),
        "off",
        "`on` serves `GET /demo`; only with `AIJOBS_AUTH=open`, so that no production ever shows it",
    ),
    Setting("AIJOBS_BIND", "bind", _address, ("127.0.0.1", 8000), "where gunicorn listens", "`127.0.0.1:8000`"),
    Setting("AIJOBS_WEB_PROCESSES", "web_processes", _whole(1, 256), 2, "gunicorn workers"),
    Setting("AIJOBS_WEB_THREADS", "web_threads", _whole(1, 2000), 272, "request threads in each gunicorn worker"),
    Setting(
        "AIJOBS_POOL_SIZE", "pool_size", _whole(1, 200), 8, "database connections of each gunicorn worker, at most"
    ),
    Setting(
        "AIJOBS_MAX_BODY_BYTES", "max_body_bytes", _whole(1024, 64 * 1024 * 1024), 1_048_576, "largest request body"
    ),
    Setting(
        "AIJOBS_LOG",
        "log_format",
        _one_of("text", "json"),
        None,
        "`text` or `json` log lines",
        "text on a terminal, else json",
    ),
)

# What the client in a program or a command takes from the environment. No server reads them.
CLIENT_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "AIJOBS_URL",
        "url",
        _text,
        "http://127.0.0.1:8000",
        "where the client finds the API",
        "`http://127.0.0.1:8000`",
    ),
    Setting("AIJOBS_API_KEY", "api_key", _text, None, "the client's API key", "none"),
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client is not told otherwise."""

    url: str
    api_key: str | None = field(repr=False)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> ClientSettings:
        values, _ = _read(os.environ if environ is None else environ, CLIENT_SETTINGS)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, valid. Built by `from_env`; the defaults of the table hold for what is not given."""

    database_url: str | None = field(default=None, repr=False)
    listen_url: str | None = field(default=None, repr=False)
    config_path: Path | None = None
    data_dir: Path = Path(".aijobs")
    pgbin: Path | None = None
    processes: int = 2
    threads: int = 8
    lease_seconds: float = 180.0
    heartbeat_seconds: float = 45.0
    attempt_seconds: float = 90.0
    poll_seconds: float = 5.0
    reap_seconds: float = 5.0
    drain_seconds: float = 100.0
    statsd: tuple[str, int] | None = None
    statsd_prefix: str = "aijobs"
    auth: str = "keys"
    secret_keys: tuple[str, ...] = field(default=(), repr=False)
    webhooks_allow: tuple[IPv4Network | IPv6Network, ...] = ()
    demo_page: str = "off"
    bind: tuple[str, int] = ("127.0.0.1", 8000)
    web_processes: int = 2
    web_threads: int = 272
    pool_size: int = 8
    max_body_bytes: int = 1_048_576
    log_format: str = "json"
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    kinds: Mapping[str, KindSettings] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **flags: Any) -> Settings:
        """The settings of the environment, with command-line flags (attribute names; None is not given) over them.

        Raises ConfigError with every problem at once.
        """
        environ = os.environ if environ is None else environ
        values, problems = _read(environ, SETTINGS)
        values.update({name: value for name, value in flags.items() if value is not None})
        _derive(values, problems)
        providers, kinds = read_config_file(values.get("config_path"), problems)
        if problems:
            raise ConfigError(problems)
        return cls(**values, providers=providers, kinds=kinds, warnings=_warnings(values))

    def require_database_url(self) -> str:
        """The DSN. Raises ConfigError naming the variable: nothing is ever stored in a place that was not asked for."""
        if self.database_url is None:
            raise ConfigError(
                ["AIJOBS_DATABASE_URL is not set: give the DSN of a PostgreSQL database, or use `aijobs dev`."]
            )
        return self.database_url

    def replace(self, **changes: Any) -> Settings:
        return dataclasses.replace(self, **changes)


def provider_api_key(provider: ProviderSettings, environ: Mapping[str, str] | None = None) -> str | None:
    """The provider's key from the variable that its configuration names; None if it needs none.

    Raises ConfigError when the variable is not set. No settings object keeps the key, so that no repr shows it.
    """
    if provider.api_key_env is None:
        return None
    key = (os.environ if environ is None else environ).get(provider.api_key_env, "").strip()
    if not key:
        raise ConfigError([f"{provider.api_key_env} is not set: [providers.{provider.name}] takes its key from it."])
    return key


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment with changes, for a program we start."""
    return {**os.environ, **changes}


def _read(environ: Mapping[str, str], rows: tuple[Setting, ...]) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems: list[str] = []
    for setting in rows:
        text = environ.get(setting.variable, "").strip()
        try:
            values[setting.attribute] = setting.parse(text) if text else setting.default
        except ValueError as error:
            shown = text if len(text) <= 60 else f"{text[:60]}..."
            given = setting.variable if setting.secret else f"{setting.variable}={shown!r}"
            problems.append(f"{given}: {error}.")
            values[setting.attribute] = setting.default
    return values, problems


def _derive(values: dict[str, Any], problems: list[str]) -> None:
    """Fill in the defaults that follow from other settings, and check those that belong together."""
    lease = cast(float, values["lease_seconds"])
    values["heartbeat_seconds"] = values["heartbeat_seconds"] or lease / 4
    values["reap_seconds"] = values["reap_seconds"] or values["poll_seconds"]
    values["drain_seconds"] = values["drain_seconds"] or values["attempt_seconds"] + 10
    values["log_format"] = values["log_format"] or ("text" if sys.stderr.isatty() else "json")
    if values["heartbeat_seconds"] > lease / 3:
        problems.append(
            f"AIJOBS_HEARTBEAT_SECONDS={values['heartbeat_seconds']:g} is more than a third of"
            f" AIJOBS_LEASE_SECONDS={lease:g}: one late beat would lose a healthy job. Lower one or raise the other."
        )
    if values["demo_page"] == "on" and values["auth"] != "open":
        problems.append("AIJOBS_DEMO_PAGE='on': the page has no API key to send. It needs AIJOBS_AUTH=open.")


def _warnings(values: Mapping[str, Any]) -> tuple[str, ...]:
    if values["drain_seconds"] < values["attempt_seconds"]:
        drain, attempt = (f"{values[name]:g}" for name in ("drain_seconds", "attempt_seconds"))
        short = f"AIJOBS_DRAIN_SECONDS={drain} is less than AIJOBS_ATTEMPT_SECONDS={attempt}"
        return (f"{short}: a deploy may cut calls that are then paid for twice.",)
    return ()
