"""Settings are judged at start, all at once, in sentences that name what to change."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aijobs.config import SETTINGS, Settings, provider_api_key
from aijobs.config_file import KindSettings
from aijobs.errors import ConfigError

GOOD_FILE = """
[providers.openai]
adapter = "openai-chat"
base_url = "https://api.example.com/v1"
api_key_env = "SOME_KEY"
read_seconds = 30

[kinds.chat]
provider = "openai"
model = "small"
models = ["large"]

[kinds.report]
handler = "myapp.jobs:report"
max_attempts = 5
"""


def problems(environ: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        Settings.from_env(environ)
    return caught.value.problems


def with_file(folder: Path, text: str) -> dict[str, str]:
    path = folder / "aijobs.toml"
    path.write_text(text, encoding="utf-8")
    return {"AIJOBS_CONFIG": str(path)}


def problem_of_file(folder: Path, text: str) -> str:
    (problem,) = problems(with_file(folder, text))
    return problem


def test_the_defaults_are_those_of_the_table() -> None:
    settings = Settings.from_env({})
    for setting in SETTINGS:
        if setting.default is not None:
            assert getattr(settings, setting.attribute) == setting.default, setting.variable
    assert (settings.heartbeat_seconds, settings.reap_seconds, settings.drain_seconds) == (45.0, 5.0, 100.0)
    assert settings.warnings == ()


def test_the_dataclass_has_the_tables_attributes_and_defaults() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(Settings)}
    assert set(fields) - {"providers", "kinds", "warnings"} == {setting.attribute for setting in SETTINGS}
    for setting in SETTINGS:
        if setting.default is not None:
            assert fields[setting.attribute] == setting.default, setting.variable


def test_the_environment_is_read() -> None:
    settings = Settings.from_env(
        {
            "AIJOBS_DATABASE_URL": "postgresql://app:secret@db/jobs",
            "AIJOBS_PROCESSES": " 4 ",
            "AIJOBS_LEASE_SECONDS": "30.5",
            "AIJOBS_POLL_SECONDS": "2",
            "AIJOBS_ATTEMPT_SECONDS": "20",
            "AIJOBS_STATSD": "[::1]:8125",
            "AIJOBS_BIND": "0.0.0.0:80",
            "AIJOBS_AUTH": "open",
            "AIJOBS_LOG": "json",
        }
    )
    assert settings.require_database_url() == "postgresql://app:secret@db/jobs"
    assert (settings.processes, settings.lease_seconds, settings.heartbeat_seconds) == (4, 30.5, 30.5 / 4)
    assert (settings.reap_seconds, settings.drain_seconds) == (2.0, 30.0)
    assert (settings.statsd, settings.bind) == (("::1", 8125), ("0.0.0.0", 80))
    assert (settings.auth, settings.log_format) == ("open", "json")
    assert "secret" not in repr(settings)


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert Settings.from_env({"AIJOBS_PROCESSES": "", "AIJOBS_DATABASE_URL": "  "}) == Settings.from_env({})


def test_flags_go_over_the_environment() -> None:
    assert Settings.from_env({"AIJOBS_THREADS": "3"}, threads=5, processes=None).threads == 5


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("AIJOBS_PROCESSES", "0", "a whole number from 1 to 1000"),
        ("AIJOBS_PROCESSES", "-1", "a whole number"),
        ("AIJOBS_PROCESSES", "2.5", "a whole number"),
        ("AIJOBS_PROCESSES", "9" * 5000, "a whole number"),
        ("AIJOBS_THREADS", "²", "a whole number"),
        ("AIJOBS_LEASE_SECONDS", "0", "a number of seconds above 0"),
        ("AIJOBS_LEASE_SECONDS", "nan", "a number of seconds"),
        ("AIJOBS_LEASE_SECONDS", "inf", "a number of seconds"),
        ("AIJOBS_LEASE_SECONDS", "1e400", "a number of seconds"),
        ("AIJOBS_POLL_SECONDS", "soon", "a number of seconds"),
        ("AIJOBS_STATSD", "statsd", "host:port"),
        ("AIJOBS_STATSD", ":8125", "host:port"),
        ("AIJOBS_STATSD", "statsd:0", "host:port"),
        ("AIJOBS_STATSD", "statsd:70000", "host:port"),
        ("AIJOBS_AUTH", "none", "keys, open"),
        ("AIJOBS_LOG", "xml", "text, json"),
        ("AIJOBS_MAX_BODY_BYTES", "1", "from 1024"),
    ],
)
def test_a_bad_value_is_named_with_what_is_expected(variable: str, text: str, expected: str) -> None:
    (problem,) = problems({variable: text})
    assert problem.startswith(f"{variable}=")
    assert expected in problem
    assert len(problem) < 500


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    environ = with_file(tmp_path, "[kinds.x]\nnonsense = 1") | {"AIJOBS_PROCESSES": "many", "AIJOBS_AUTH": "no"}
    told = problems(environ)
    assert [problem.split("=")[0] for problem in told[:2]] == ["AIJOBS_PROCESSES", "AIJOBS_AUTH"]
    assert "'nonsense'" in told[2]


def test_a_heartbeat_of_more_than_a_third_of_the_lease_is_refused_naming_both() -> None:
    (problem,) = problems({"AIJOBS_LEASE_SECONDS": "30", "AIJOBS_HEARTBEAT_SECONDS": "11"})
    assert "AIJOBS_HEARTBEAT_SECONDS=11" in problem
    assert "AIJOBS_LEASE_SECONDS=30" in problem
    assert Settings.from_env({"AIJOBS_LEASE_SECONDS": "30", "AIJOBS_HEARTBEAT_SECONDS": "10"}).heartbeat_seconds == 10


def test_a_drain_shorter_than_an_attempt_is_warned_of() -> None:
    (warning,) = Settings.from_env({"AIJOBS_DRAIN_SECONDS": "89"}).warnings
    assert "AIJOBS_DRAIN_SECONDS=89" in warning
    assert "paid for twice" in warning


def test_the_database_url_is_required_by_its_name() -> None:
    with pytest.raises(ConfigError, match="AIJOBS_DATABASE_URL is not set"):
        Settings.from_env({}).require_database_url()


def test_providers_and_kinds_are_read_from_the_file(tmp_path: Path) -> None:
    settings = Settings.from_env(with_file(tmp_path, GOOD_FILE))
    provider = settings.providers["openai"]
    assert (provider.base_url, provider.read_seconds, provider.connect_seconds) == (
        "https://api.example.com/v1",
        30.0,
        5.0,
    )
    assert settings.kinds["chat"] == KindSettings(
        "chat", uses="chat", provider="openai", model="small", models=("large",), on_unknown="retry"
    )
    assert settings.kinds["report"].on_unknown == "hold"


def test_a_kinds_attempts_are_three_by_default_and_ten_at_most_unless_it_says(tmp_path: Path) -> None:
    kinds = Settings.from_env(with_file(tmp_path, GOOD_FILE)).kinds
    assert (kinds["chat"].default_max_attempts, kinds["chat"].maximum_attempts) == (3, 10)
    assert (kinds["report"].default_max_attempts, kinds["report"].maximum_attempts) == (5, 5)


def test_a_providers_key_comes_from_its_variable_and_is_kept_nowhere(tmp_path: Path) -> None:
    settings = Settings.from_env(with_file(tmp_path, GOOD_FILE) | {"SOME_KEY": "sk-secret"})
    assert provider_api_key(settings.providers["openai"], {"SOME_KEY": "sk-secret\n"}) == "sk-secret"
    assert "sk-secret" not in repr(settings)
    with pytest.raises(ConfigError, match=r"SOME_KEY is not set: \[providers.openai\]"):
        provider_api_key(settings.providers["openai"], {})


PROVIDER = '[providers.p]\nadapter = "openai-chat"\nbase_url = "http://127.0.0.1:1/v1"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[providers.p", "cannot be read"),
        ("[queues.q]\n", "unknown section [queues]"),
        ("kinds = 1\n", "[kinds] must hold tables"),
        ("[kinds]\nchat = 1\n", "[kinds.chat] must be a table"),
        ('[kinds."Bad Name"]\nhandler = "a:b"\n', "[kinds.Bad Name]: a name has"),
        (PROVIDER + "max_concurrency = 5\n", "[providers.p]: unknown key 'max_concurrency'"),
        ('[providers.p]\nadapter = "openai-chat"\n', "[providers.p]: base_url is missing"),
        (PROVIDER.replace("openai-chat", "soap"), "adapter 'soap' is not one of: openai-chat"),
        (PROVIDER.replace("http://", "ftp://"), "base_url must be an http or https URL"),
        (PROVIDER.replace("127.0.0.1", "user:pass@127.0.0.1"), "base_url must be"),
        (PROVIDER.replace("/v1", "/v1?key=1"), "base_url must be"),
        (PROVIDER.replace(":1/", ":99999/"), "base_url must be"),
        (PROVIDER + "read_seconds = 0\n", "read_seconds = 0: expected a number above 0"),
        (PROVIDER + "read_seconds = nan\n", "expected a number above 0"),
        (PROVIDER + "read_seconds = true\n", "expected a number above 0"),
        (PROVIDER + 'read_seconds = "5"\n', "expected a number above 0"),
        (PROVIDER + "max_reply_bytes = 1\n", "max_reply_bytes must be at least 1024"),
        ("[kinds.k]\n", "give either uses"),
        ('[kinds.k]\nuses = "magic"\n', "uses = 'magic' is unknown"),
        ('[kinds.k]\nhandler = "a.b"\n', "module:function"),
        ('[kinds.chat]\nmodel = "m"\n', "[kinds.chat]: a chat kind needs provider and model"),
        ('[kinds.chat]\nmodel = "m"\nprovider = "q"\n', "provider 'q' is not configured; configured are: none"),
        ('[kinds.k]\nhandler = "a:b"\non_unknown = "guess"\n', "on_unknown = 'guess' is not one of"),
        ('[kinds.k]\nhandler = "a:b"\nmax_attempts = 11\n', "max_attempts must be from 1 to 10"),
        ('[kinds.k]\nhandler = "a:b"\nmax_attempts = 0\n', "max_attempts must be from 1 to 10"),
        ('[kinds.k]\nhandler = "a:b"\nmax_unknown_retries = 11\n', "max_unknown_retries must be from 0 to 10"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problem_of_file(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (problem,) = problems({"AIJOBS_CONFIG": str(tmp_path / "none.toml")})
    assert problem.startswith("AIJOBS_CONFIG=")
    assert "none.toml" in problem
