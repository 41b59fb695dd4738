"""The `aijobs` command: what it prints for people and for programs, and how it ends."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import click
import pytest

from aijobs.cli import COMMANDS
from aijobs.store import tenants
from aijobs.store.db import Database
from aijobs.store.migrate import required_level

CHECKOUT = Path(__file__).parents[2]


def aijobs(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIJOBS_")}
    return subprocess.run(
        [sys.executable, "-m", "aijobs", *arguments],
        cwd=CHECKOUT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_is_there(name: str) -> None:
    assert isinstance(getattr(importlib.import_module(f"aijobs.cli.{name}"), name), click.Command)


def test_help_lists_every_command_and_loads_none() -> None:
    done = aijobs("--help")
    assert done.returncode == 0
    for name, words in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert words.split()[0] in done.stdout
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "aijobs", "--help"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"psycopg", "flask", "requests", "marshmallow"} & {
        line.split()[-1] for line in loaded.stderr.splitlines()
    }


def test_version() -> None:
    assert aijobs("--version").stdout == "aijobs, version 0.1.0\n"


def test_without_a_database_url_it_ends_with_2_and_names_the_variable() -> None:
    done = aijobs("migrate")
    assert done.returncode == 2
    assert done.stderr.startswith("aijobs: AIJOBS_DATABASE_URL is not set")


def test_all_configuration_problems_are_printed_one_a_line() -> None:
    done = aijobs("migrate", AIJOBS_PROCESSES="x", AIJOBS_AUTH="y")
    assert done.returncode == 2
    assert [line.split("=")[0] for line in done.stderr.splitlines()] == [
        "aijobs: AIJOBS_PROCESSES",
        "aijobs: AIJOBS_AUTH",
    ]


def test_a_dsn_that_is_none_is_told_without_its_password() -> None:
    done = aijobs("migrate", AIJOBS_DATABASE_URL="postgres//app:sesame@db/jobs")
    assert done.returncode == 2
    assert "not a PostgreSQL DSN" in done.stderr
    assert "sesame" not in done.stderr


@pytest.mark.parametrize("command", [("migrate",), ("tenants", "list")])
def test_a_database_that_is_away_ends_it_with_1_and_a_sentence(command: tuple[str, ...]) -> None:
    done = aijobs(*command, AIJOBS_DATABASE_URL="postgresql://app:sesame@127.0.0.1:1/jobs?connect_timeout=2")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("aijobs: ")
    assert "sesame" not in done.stderr


def test_migrate_tells_programs_what_it_applied(empty_database_url: str) -> None:
    first = json.loads(aijobs("migrate", "--json", AIJOBS_DATABASE_URL=empty_database_url).stdout)
    again = json.loads(aijobs("migrate", "--json", AIJOBS_DATABASE_URL=empty_database_url).stdout)
    assert first["applied"][0] == "0001_create_jobs"
    assert (again["applied"], again["level"]) == ([], required_level())


def test_a_database_that_is_not_migrated_ends_it_with_4_and_says_what_to_do(empty_database_url: str) -> None:
    done = aijobs("tenants", "list", AIJOBS_DATABASE_URL=empty_database_url)
    assert done.returncode == 4
    assert "run `aijobs migrate`" in done.stderr


def test_a_tenant_and_its_keys_from_beginning_to_end(database_url: str, db: Database) -> None:
    made = aijobs("tenants", "create", "shop", "--json", AIJOBS_DATABASE_URL=database_url)
    tenant_id = json.loads(made.stdout)["tenant_id"]
    listed = json.loads(aijobs("tenants", "list", "--json", AIJOBS_DATABASE_URL=database_url).stdout)
    assert [(row["id"], row["name"]) for row in listed] == [(tenant_id, "shop")]

    scopes = ("--scope", "read", "--scope", "operate")
    made = aijobs(
        "keys", "create", "--tenant", tenant_id, *scopes, "--name", "ops", "--json", AIJOBS_DATABASE_URL=database_url
    )
    key = json.loads(made.stdout)["api_key"]
    found = tenants.authenticate(db, key)
    assert found is not None
    assert (found.tenant_id, found.scopes) == (UUID(tenant_id), {"read", "operate"})

    shown = aijobs("keys", "list", "--tenant", tenant_id, AIJOBS_DATABASE_URL=database_url).stdout
    prefix = key.split("_")[1]
    assert prefix in shown
    assert "ops" in shown
    assert key not in shown

    assert aijobs("keys", "revoke", prefix, AIJOBS_DATABASE_URL=database_url).returncode == 0
    assert tenants.authenticate(db, key) is None
    again = aijobs("keys", "revoke", prefix, AIJOBS_DATABASE_URL=database_url)
    assert again.returncode == 1
    assert "no such key" in again.stderr


def test_a_name_that_is_taken_and_a_tenant_that_is_not_there_are_sentences(database_url: str, tenant: UUID) -> None:
    aijobs("tenants", "create", "shop", AIJOBS_DATABASE_URL=database_url)
    taken = aijobs("tenants", "create", "shop", AIJOBS_DATABASE_URL=database_url)
    nobody = aijobs("keys", "create", "--tenant", str(UUID(int=1)), AIJOBS_DATABASE_URL=database_url)
    malformed = aijobs("keys", "create", "--tenant", "shop", AIJOBS_DATABASE_URL=database_url)
    assert (taken.returncode, nobody.returncode, malformed.returncode) == (1, 1, 2)
    assert "already" in taken.stderr
    assert "no tenant" in nobody.stderr
    assert "Traceback" not in taken.stderr + nobody.stderr + malformed.stderr
