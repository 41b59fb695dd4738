"""While the database is away the API says so and comes back by itself; nothing accepted is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest

from aijobs.store.db import Connection
from tests.api.client import Client, problem_of
from tests.api.server import wait_for
from tests.relay import Relay

Make = Callable[..., Client]


pytestmark = pytest.mark.usefixtures("impatient")


def test_the_same_key_is_sent_again_when_the_network_is_back(make_client: Make, database_url: str) -> None:
    with Relay(database_url) as relay:
        client = make_client(database_url=relay.dsn)
        first = client.created(key="first")
        relay.refuse()
        for _ in range(3):
            answered = client.create(key="k")
            assert problem_of(answered)["code"] == "unavailable"
            assert answered.headers["Retry-After"]
        assert client.get("/health/ready").status_code == 503
        assert client.get("/health/live").status_code == 200
        relay.forward()
        wait_for(lambda: client.create(key="k").status_code == 202, "the API to come back")
        assert client.created(key="first")["job_id"] == first["job_id"]
        wait_for(lambda: client.get("/health/ready").status_code == 200, "readiness")


def test_terminated_connections_cost_at_most_a_repeat(client: Client, connection: Connection) -> None:
    client.created()
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'aijobs api'")
    wait_for(lambda: client.create(key="k").status_code == 202, "the API to come back")


def test_a_silent_network_makes_the_process_unready_but_not_dead(make_client: Make, database_url: str) -> None:
    with Relay(database_url) as relay:
        client = make_client(database_url=relay.dsn)
        client.created()
        relay.blackhole()
        started = time.monotonic()
        assert client.get("/health/ready").status_code == 503
        assert time.monotonic() - started < 7
        assert client.get("/health/live").status_code == 200
        relay.forward()
        wait_for(lambda: client.get("/health/ready").status_code == 200, "readiness")


def test_a_database_that_refuses_writes_is_unavailable_until_it_takes_them(client: Client, database_url: str) -> None:
    """What a demoted primary looks like to connections that were open, and to new ones."""
    client.created()
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'aijobs api'")
        for _ in range(3):
            assert problem_of(client.create(key="k"))["code"] == "unavailable"
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        wait_for(lambda: client.create(key="k").status_code == 202, "writes to work")
