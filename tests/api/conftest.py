"""The API under test: in this process, or served by gunicorn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from aijobs.api import create_app, service, service_of
from aijobs.config import Settings
from aijobs.config_file import KindSettings, ProviderSettings
from aijobs.embedded import EmbeddedPostgres
from aijobs.store import tenants
from aijobs.store.db import Database
from tests.api.client import Client
from tests.api.server import Server, served
from tests.conftest import fresh_database

CONFIG = """
[providers.simulator]
adapter = "openai-chat"
base_url = "http://127.0.0.1:9/v1"

[kinds.chat]
provider = "simulator"
model = "simulated"
models = ["other"]

[kinds.report]
handler = "nowhere:report"
max_attempts = 2
"""

PROVIDER = ProviderSettings("simulator", "openai-chat", "http://127.0.0.1:9/v1")
KINDS = {
    "chat": KindSettings(
        "chat", uses="chat", provider="simulator", model="simulated", models=("other",), on_unknown="retry"
    ),
    "report": KindSettings("report", handler="nowhere:report", on_unknown="hold", max_attempts=2),
}


@pytest.fixture
def settings(database_url: str) -> Settings:
    return settings_for(database_url)


@pytest.fixture(scope="session")
def shared_client(postgres: EmbeddedPostgres, template: str) -> Iterator[Client]:
    """A client for tests that neither mind what others left in the database nor leave anything that others mind."""
    with fresh_database(postgres, template) as dsn:
        app = create_app(settings_for(dsn))
        db = service_of(app).db
        yield Client(app, tenants.create_key(db, tenants.create_tenant(db, "shared")))
        service_of(app).close()


@pytest.fixture
def make_client(settings: Settings, api_key: str) -> Iterator[Callable[..., Client]]:
    apps: list[Flask] = []

    def make(key: str | None = None, **changes: Any) -> Client:
        app = create_app(settings.replace(**changes))
        apps.append(app)
        return Client(app, key or api_key)

    yield make
    for app in apps:
        service_of(app).close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    """A client with a key of `tenant` that may submit and read."""
    return make_client()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications that are made from here on wait half a second for the database, for tests without one."""
    monkeypatch.setattr(service, "POOL_WAIT_SECONDS", 0.5)


@pytest.fixture
def foreign_client(client: Client, db: Database, other_tenant: UUID) -> Client:
    """A client of another tenant, of the same application."""
    return client.with_key(tenants.create_key(db, other_tenant))


@pytest.fixture(scope="session")
def shared_server(
    postgres: EmbeddedPostgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """gunicorn with two processes, for tests that leave it as they found it."""
    folder = tmp_path_factory.mktemp("served")
    with fresh_database(postgres, template) as dsn:
        with contextlib.closing(Database(dsn, application_name="test")) as db:
            key = tenants.create_key(db, tenants.create_tenant(db, "shared"))
        with served(folder, key, **environment_for(dsn, config_in(folder))) as server:
            yield server


@pytest.fixture
def serve(database_url: str, config_file: Path, api_key: str, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start gunicorn on the test's own database; the arguments are gunicorn's, the keywords settings."""
    with contextlib.ExitStack() as servers:

        def start(*arguments: str, **environment: str) -> Server:
            merged = environment_for(database_url, config_file) | environment
            return servers.enter_context(served(tmp_path, api_key, *arguments, **merged))

        yield start


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return config_in(tmp_path)


def settings_for(dsn: str) -> Settings:
    return Settings(database_url=dsn, kinds=KINDS, providers={"simulator": PROVIDER}, max_body_bytes=100_000)


def config_in(folder: Path) -> Path:
    path = folder / "aijobs.toml"
    path.write_text(CONFIG)
    return path


def environment_for(dsn: str, config: Path) -> dict[str, str]:
    return {"AIJOBS_DATABASE_URL": dsn, "AIJOBS_CONFIG": str(config), "AIJOBS_MAX_BODY_BYTES": "100000"}
