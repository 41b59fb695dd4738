"""Processes start with nothing shared, stop without cutting a request off, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.api.client import CHAT
from tests.api.conftest import environment_for
from tests.api.server import Server, launch, wait_for

NAME = "aijobs api"


def backends(dsn: str) -> int:
    """How many connections API processes have."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()", [NAME]
        ).fetchone()
        assert row is not None
        return int(row[0])


def sockets(pid: int) -> set[str]:
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return {link for link in links if link.startswith("socket:")}


def mixed_requests(server: Server, count: int, name: str) -> None:
    """Creates and reads from many clients; each read must bring the very job that was asked for."""

    def run(number: int) -> None:
        created = server.create(f"{name}-{number}", {**CHAT, "user_id": f"{name}-{number}"})
        assert created.status == 202, created.body
        job_id = created.json["job_id"]
        read = server.request("GET", f"/api/ai/jobs/{job_id}")
        assert (read.status, read.json["job_id"], read.json["user_id"]) == (200, job_id, f"{name}-{number}")

    with ThreadPoolExecutor(16) as clients:
        list(clients.map(run, range(count)))


def test_an_application_loaded_before_the_fork_shares_no_connection(
    serve: Callable[..., Server], database_url: str
) -> None:
    server = serve("--preload", AIJOBS_WEB_PROCESSES="3", AIJOBS_WEB_THREADS="8")
    assert backends(database_url) == 0
    listening = sockets(server.process.pid)
    assert len(list(Path(f"/proc/{server.process.pid}/task").iterdir())) == 1
    mixed_requests(server, 150, "before")
    assert backends(database_url) > 0
    for victim in server.workers():
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: victim not in server.workers() and len(server.workers()) == 3, "a new worker")  # noqa: B023
    mixed_requests(server, 150, "after")
    assert sockets(server.process.pid) == listening
    owned = [sockets(pid) - listening for pid in server.workers()]
    assert all(owned)
    assert sum(len(each) for each in owned) == len(set().union(*owned))


def test_a_request_in_progress_is_finished_at_the_stop(serve: Callable[..., Server], database_url: str) -> None:
    # One process, which has answered: gunicorn loses a signal to a worker that is still starting, and waits for it.
    server = serve(AIJOBS_WEB_PROCESSES="1")
    server.create("other", CHAT)
    with psycopg.connect(database_url) as holder, ThreadPoolExecutor(1) as background:
        holder.execute("UPDATE ai_jobs SET idempotency_key = 'k'")
        answered = background.submit(server.create, "k", CHAT)
        wait_for(lambda: waiting_for_a_lock(database_url), "the create to wait")
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        holder.rollback()
        assert answered.result().status == 202
    assert server.process.wait(20) == 0
    assert backends(database_url) == 0


def waiting_for_a_lock(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        waiting = connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
            " AND wait_event_type = 'Lock'",
            [NAME],
        )
        return waiting.fetchone() is not None


def test_hints_reach_a_listener_after_the_commit(serve: Callable[..., Server], database_url: str) -> None:
    server = serve()
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute("LISTEN aijobs_jobs")
        server.create("due", {**CHAT, "queue": "urgent"})
        (hint,) = listener.notifies(timeout=5, stop_after=1)
        assert hint.payload == "urgent"
        server.create("later", {**CHAT, "queue": "urgent", "run_at": "2090-01-01T00:00:00Z"})
        assert list(listener.notifies(timeout=0.3)) == []


@pytest.mark.parametrize(
    ("arguments", "changes", "words"),
    [
        ((), {"AIJOBS_DATABASE_URL": ""}, ["AIJOBS_DATABASE_URL is not set"]),
        ((), {"AIJOBS_WEB_THREADS": "many", "AIJOBS_AUTH": "closed"}, ["AIJOBS_WEB_THREADS", "AIJOBS_AUTH"]),
        (("-b", "0.0.0.0:0"), {"AIJOBS_AUTH": "open"}, ["AIJOBS_AUTH=open", "0.0.0.0"]),
        (("-b", "127.0.0.1:0", "-b", "0.0.0.0:0"), {"AIJOBS_AUTH": "open"}, ["AIJOBS_AUTH=open"]),
        (("--preload",), {"AIJOBS_DATABASE_URL": ""}, ["AIJOBS_DATABASE_URL is not set"]),
    ],
)
def test_what_cannot_be_served_is_said_at_the_start(
    tmp_path: Path, config_file: Path, arguments: tuple[str, ...], changes: dict[str, str], words: list[str]
) -> None:
    environment = environment_for("host=/nonexistent", config_file) | changes
    with (tmp_path / "log").open("w+b") as log:
        process: subprocess.Popen[bytes] = launch(log, *arguments, **environment)
        assert process.wait(20) == 2
        log.seek(0)
        said = log.read().decode()
    assert all(word in said for word in words), said
    assert "Traceback" not in said


def test_open_mode_is_served_on_this_machine(serve: Callable[..., Server]) -> None:
    server = serve(AIJOBS_AUTH="open")
    answered = server.request("POST", "/api/ai/jobs", CHAT, Idempotency_Key="k", Authorization="")
    assert answered.status == 202
    assert server.request("GET", "/api/ai/jobs", X_Forwarded_For="10.0.0.1").status == 403


def test_lines_of_the_server_are_json_where_lines_of_the_application_are(serve: Callable[..., Server]) -> None:
    import json

    server = serve(AIJOBS_LOG="json")
    lines = [line for line in server.log().splitlines() if line.startswith("{")]
    assert any("Listening at" in json.loads(line)["message"] for line in lines)
