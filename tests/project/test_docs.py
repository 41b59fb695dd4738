"""The README names every setting, metric, problem, exit status, command and SQL file that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aijobs.api.problems import PROBLEMS
from aijobs.cli import COMMANDS
from aijobs.config import CLIENT_SETTINGS, SETTINGS
from aijobs.config_file import KindSettings, ProviderSettings
from aijobs.domain.jobs import JobStatus
from workers import exit_codes

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE_WORDS = set(re.findall(r"`([^`]+)`", README))


@pytest.mark.parametrize("setting", SETTINGS + CLIENT_SETTINGS, ids=lambda setting: setting.variable)
def test_every_setting_is_in_the_table_with_its_default(setting: object) -> None:
    row = next((line for line in README.splitlines() if line.startswith(f"| `{setting.variable}` |")), None)  # type: ignore[attr-defined]
    assert row is not None
    default = setting.default  # type: ignore[attr-defined]
    if isinstance(default, int | float):
        assert f"| {default:g} |" in row or f"| {default} |" in row


def test_every_variable_the_readme_names_exists() -> None:
    named = set(re.findall(r"AIJOBS_[A-Z_]+", README))
    assert named <= {setting.variable for setting in SETTINGS + CLIENT_SETTINGS}


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_is_in_the_table_with_its_status(code: str) -> None:
    assert f"| {PROBLEMS[code].status} | `{code}` |" in README


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_named(command: str) -> None:
    section = README.split("### Commands and exit statuses")[1].split("##")[0]
    assert re.search(rf"`(aijobs )?{command}`", section)


def test_every_exit_status_is_in_the_table() -> None:
    section = README.split("### Commands and exit statuses")[1].split("\n## ")[0]
    statuses = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert all(f"| {status} |" in section for status in statuses | {0, 1})


def test_every_metric_is_named() -> None:
    source = (ROOT / "aijobs" / "metrics.py").read_text(encoding="utf-8")
    names = set(re.findall(r'(?:_count|_time|path =|path:)[( ]*f?"([a-z_]+)["\.]', source))
    assert {"jobs_created", "queue_wait", "provider", "tokens", "api"} <= names
    section = README.split("### Metrics")[1].split("### ")[0]
    assert [name for name in names if f"`{name}`" not in section and f"`{name}." not in section] == []


@pytest.mark.parametrize("status", JobStatus)
def test_every_status_is_explained(status: JobStatus) -> None:
    assert f"| `{status}` |" in README


@pytest.mark.parametrize("into", [ProviderSettings, KindSettings])
def test_every_key_of_the_file_is_named(into: type) -> None:
    section = README.split("### Settings")[1].split("### ")[0]
    keys = into.__dataclass_fields__.keys() - {"name", "given"}
    assert [name for name in keys if f"`{name}" not in section] == []


def test_every_sql_file_and_function_the_readme_names_exists() -> None:
    for named in re.findall(r"`sql/([a-z_]+)/([a-z_{},]+)\.sql`", README):
        folder, names = named
        for name in names.strip("{}").split(","):
            assert (ROOT / "sql" / folder / f"{name}.sql").is_file(), named
    for path, function in re.findall(r"`((?:aijobs|workers|store|domain)/[a-z_/]+\.py)(?:::([A-Za-z_.]+))?`", README):
        file = ROOT / path if (ROOT / path).is_file() else ROOT / "aijobs" / path
        assert file.is_file(), path
        assert (
            not function
            or f" {function.split('.')[-1]}(" in file.read_text()
            or f"class {function}" in file.read_text()
        )
