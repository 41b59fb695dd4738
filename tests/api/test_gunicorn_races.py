"""Simultaneous posts of one key to several processes make one job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from tests.api.client import CHAT
from tests.api.server import Answer, Server
from tests.store.make import HASH

CLIENTS = 50


def post_at_once(server: Server, key: str) -> list[Answer]:
    start = threading.Barrier(CLIENTS)

    def post(_: int) -> Answer:
        start.wait()
        answered = server.create(key, CHAT)
        while answered.status == 503:
            assert answered.headers["Retry-After"]
            time.sleep(0.05)
            answered = server.create(key, CHAT)
        return answered

    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(post, range(CLIENTS)))


def assert_one_job(answers: list[Answer]) -> str:
    assert [answered.status for answered in answers] == [202] * CLIENTS
    (job_id,) = {answered.json["job_id"] for answered in answers}
    assert sum("Idempotent-Replayed" not in answered.headers for answered in answers) == 1
    return str(job_id)


def test_fifty_posts_of_one_key_make_one_job(serve: Callable[..., Server], database_url: str) -> None:
    server = serve(AIJOBS_WEB_PROCESSES="2")
    for round_number in range(5):
        assert_one_job(post_at_once(server, f"key-{round_number}"))
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM ai_jobs").fetchone() == (5,)
        assert connection.execute("SELECT count(*) FROM ai_events").fetchone() == (5,)


def test_a_lock_on_the_jobs_row_holds_up_no_replay(serve: Callable[..., Server], database_url: str) -> None:
    server = serve(AIJOBS_WEB_PROCESSES="2")
    server.create("k", CHAT)
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT 1 FROM ai_jobs FOR UPDATE")
        answers = post_at_once(server, "k")
    assert {answered.status for answered in answers} == {202}
    assert len({answered.json["job_id"] for answered in answers}) == 1


def test_posts_wait_for_a_key_that_another_transaction_holds(serve: Callable[..., Server], database_url: str) -> None:
    """It gives the key back after a second: within the lock wait, so that nobody is refused."""
    server = serve(AIJOBS_WEB_PROCESSES="2")
    server.create("other", CHAT)
    with psycopg.connect(database_url) as holder, ThreadPoolExecutor(1) as background:
        holder.execute("UPDATE ai_jobs SET idempotency_key = 'k', request_hash = %s", [HASH])
        answers = background.submit(post_at_once, server, "k")
        time.sleep(1.0)
        holder.rollback()
        assert_one_job(answers.result())
