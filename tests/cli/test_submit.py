"""`aijobs jobs submit`: what it prints where, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.faults import (
    JOB_ID,
    Behaviour,
    Events,
    FaultServer,
    Reply,
    document,
    faults,
    in_order,
    job_document,
)

CHECKOUT = Path(__file__).parents[2]
KEY = "aij_abcd_sesame"
DONE = job_document("succeeded", result={"text": "A whole answer."})
FAILED = job_document("failed", error={"code": "content_refused", "class": "permanent", "message": "No such thing"})
STORY = in_order(
    "job.queued",
    "job.started",
    ("", "A half"),
    "job.output.reset",
    ("", "A whole "),
    ("", "answer."),
    "job.succeeded",
)


def api(job: Any, events: Events | None = None, *, created: Any = None) -> Behaviour:
    """An API in which the job is as given from its first look on."""

    def behave(reply: Reply) -> None:
        if reply.asked.method == "POST":
            reply.document(created or job_document(), 202)
        elif reply.asked.path.endswith("/events") and events is not None:
            events.well(reply)
        else:
            reply.document(job)

    return behave


def command(server: FaultServer | str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    url = server if isinstance(server, str) else server.url
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIJOBS_")}
    environment = inherited | {"AIJOBS_URL": url, "AIJOBS_API_KEY": KEY}
    return [sys.executable, "-m", "aijobs", "jobs", "submit", *arguments], environment


def submit(server: FaultServer | str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    words, environment = command(server, *arguments)
    return subprocess.run(
        words, cwd=CHECKOUT, env=environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def test_without_waiting_it_prints_the_id() -> None:
    with faults(then=api(DONE)) as server:
        done = submit(server, "chat", "-p", "Hello", "--key", "k-1")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{JOB_ID}\n", "")
        (asked,) = server.asked
    assert asked.headers["Idempotency-Key"] == "k-1"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert json.loads(asked.body) == {"kind": "chat", "payload": {"prompt": "Hello"}}


@pytest.mark.parametrize("how", ["text", "file", "stdin"])
def test_a_payload_is_taken_from_each_place(how: str, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('{"a": [1, "é"]}')
    arguments = {
        "text": ("--payload", '{"a": [1, "é"]}'),
        "file": ("--payload-file", str(tmp_path / "payload.json")),
        "stdin": ("--payload-file", "-"),
    }
    with faults(then=api(DONE)) as server:
        assert submit(server, "report", *arguments[how], stdin='{"a": [1, "é"]}').returncode == 0
        assert json.loads(server.asked[0].body)["payload"] == {"a": [1, "é"]}


@pytest.mark.parametrize(
    "arguments",
    [
        ("chat",),
        ("chat", "-p", "a", "--payload", "{}"),
        ("chat", "--payload", "{"),
        ("chat", "--payload", "[1]"),
        ("chat", "--payload", '{"a": NaN}'),
        ("chat", "--payload-file", "/nonexistent"),
        ("chat", "-p", "a", "--key", "a,b"),
        ("chat", "-p", "a", "--url", "jobs.test"),
        ("chat", "-p", "a", "--wait", "soon"),
    ],
)
def test_wrong_use_ends_with_2_and_sends_nothing(arguments: tuple[str, ...]) -> None:
    with faults(then=api(DONE)) as server:
        done = submit(server, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        assert server.asked == []


def test_wait_prints_the_text_or_the_result_or_the_job() -> None:
    with faults(then=api(DONE)) as server:
        assert submit(server, "chat", "-p", "a", "--wait", "20").stdout == "A whole answer.\n"
        assert json.loads(submit(server, "chat", "-p", "a", "--wait", "20", "--json").stdout) == DONE
    with faults(then=api(job_document("succeeded", result={"pages": 3}))) as server:
        done = submit(server, "ocr", "--payload", "{}", "--wait", "20")
        assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"pages": 3}, "")


def test_a_job_that_fails_ends_it_with_1_and_the_reason() -> None:
    with faults(then=api(FAILED)) as server:
        done = submit(server, "chat", "-p", "a", "--wait", "20")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"job {JOB_ID} has failed: content_refused: No such thing\n"
        as_json = submit(server, "chat", "-p", "a", "--wait", "20", "--json")
        assert (as_json.returncode, json.loads(as_json.stdout)) == (1, FAILED)


def test_a_job_that_is_not_finished_in_time_ends_it_with_3_and_says_how_to_go_on() -> None:
    with faults(then=api(job_document("running"))) as server:
        done = submit(server, "chat", "-p", "a", "--wait", "0.3", "--key", "k-7")
    assert (done.returncode, done.stdout) == (3, "")
    for words in ("it is running", "--key k-7", f"aijobs jobs show {JOB_ID}", f"aijobs jobs cancel {JOB_ID}"):
        assert words in done.stderr


def test_stream_prints_the_text_and_says_where_it_starts_over() -> None:
    with faults(Events(STORY).well, then=api(DONE, Events(STORY))) as server:
        server.plan.clear()
        done = submit(server, "chat", "-p", "a", "--stream")
    assert (done.returncode, done.stdout) == (0, "A half\nA whole answer.\n")
    assert done.stderr == "the text starts over: take back what was printed of it.\n"


def test_stream_as_json_is_an_event_a_line_and_then_the_job() -> None:
    with faults(then=api(DONE, Events(STORY))) as server:
        done = submit(server, "chat", "-p", "a", "--stream", "--json")
    *events, job = map(json.loads, done.stdout.splitlines())
    assert [event["type"] for event in events] == [event["type"] for event in STORY]
    assert events[2] == {"seq": 3, "type": "job.output.delta", "text": "A half"}
    assert (done.returncode, job) == (0, DONE)


def test_a_stream_keeps_the_time() -> None:
    def silent(reply: Reply) -> None:
        Events(STORY).broken_after(3, lambda _: time.sleep(5))(reply)

    with faults(document(job_document(), 202), then=silent) as server:
        done = submit(server, "chat", "-p", "a", "--stream", "--wait", "0.5")
    assert (done.returncode, done.stdout) == (3, "A half\n")
    assert "goes on" in done.stderr


@pytest.mark.parametrize(("status", "code"), [(401, "unauthenticated"), (409, "idempotency_key_reused")])
def test_a_refusal_ends_it_with_1_and_a_sentence(status: int, code: str) -> None:
    with faults(then=lambda reply: reply.problem(status, code)) as server:
        done = submit(server, "chat", "-p", "a secret")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"aijobs: {code}: ")
    assert not any(word in done.stderr for word in ("Traceback", "sesame", "a secret"))


def test_what_is_wrong_with_the_request_is_told_line_by_line() -> None:
    problem = {"code": "validation_error", "title": "T", "errors": [{"pointer": "#/payload/x", "detail": "Unknown."}]}
    with faults(then=lambda reply: reply.document(problem, 422)) as server:
        done = submit(server, "chat", "-p", "a")
    assert done.returncode == 1
    assert "  #/payload/x: Unknown.\n" in done.stderr


@contextlib.contextmanager
def interruptible(server: FaultServer, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    words, environment = command(server, *arguments)
    process = subprocess.Popen(
        words, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [("--wait", "60"), ("--stream",)])
def test_ctrl_c_leaves_the_job_and_says_how_to_go_on(how: tuple[str, ...]) -> None:
    def pending(reply: Reply) -> None:
        if reply.asked.path.endswith("/events"):
            Events(STORY).broken_after(2, lambda _: time.sleep(30))(reply)
        else:
            reply.document(job_document("running"), Retry_After="5")

    with (
        faults(document(job_document(), 202), then=pending) as server,
        interruptible(server, "chat", "-p", "a", "--key", "k", *how) as process,
    ):
        give_up_at = time.monotonic() + 20
        while len(server.asked) < 2 and time.monotonic() < give_up_at:
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
        assert process.returncode == 130
        assert not any(asked.path.endswith("/cancel") for asked in server.asked)
    for words in (f"Job {JOB_ID} goes on", "--key k", f"aijobs jobs show {JOB_ID}", f"aijobs jobs cancel {JOB_ID}"):
        assert words in said
    assert "Traceback" not in said


def test_on_a_terminal_it_says_how_the_job_stands_and_cleans_up() -> None:
    looks = iter(["queued", "running", "running"])

    def goes_on(reply: Reply) -> None:
        time.sleep(0.4)
        status = next(looks, None)
        reply.document(DONE if status is None else job_document(status), Retry_After="0.1")

    with faults(document(job_document(), 202), then=goes_on) as server:
        words, environment = command(server, "chat", "-p", "a", "--wait", "30")
        ours, theirs = pty.openpty()
        process = subprocess.Popen(words, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        shown = _read_all(ours)
        printed, _ = process.communicate(timeout=20)
    assert (process.returncode, printed) == (0, b"A whole answer.\n")
    assert b"running, attempt 1" in shown
    assert shown.endswith(b"\r\x1b[K")


def _read_all(terminal: int) -> bytes:
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError as error:
        assert error.errno == errno.EIO  # how Linux says that the other side is closed
    finally:
        os.close(terminal)
    return shown


def test_help_tells_every_exit_status() -> None:
    done = submit("http://127.0.0.1:1", "--help")
    assert all(f"\n    {status} " in done.stdout for status in (0, 1, 2, 3, 130))
