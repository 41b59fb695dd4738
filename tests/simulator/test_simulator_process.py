"""As a program: it says where it listens, bears a crowd, and ends when told."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import aijobs
from aijobs.simulator import Simulator, SimulatorProcess
from aijobs.simulator.directives import NAMES
from aijobs.simulator.errors import ERRORS
from tests.simulator.client import ask, chat_body, read_all, send_raw, wait_for

_CHECKOUT = Path(aijobs.__file__).parents[1]
_COMMAND = [sys.executable, "-c", "from aijobs.cli.simulator import simulator; simulator()"]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*_COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_CHECKOUT
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_whatever_is_open(number: signal.Signals) -> None:
    with running("--port", "0") as process:
        line = process.stdout.readline()
        match = re.fullmatch(r"simulator listening on (http://127\.0\.0\.1:\d+/v1)\n", line)
        assert match, line
        hanging = send_raw(match[1], chat_body("[[sim: hang=headers]]"))
        streaming = send_raw(match[1], chat_body("[[sim: tokens=1000 delta_ms=50]]", stream=True))
        assert streaming.recv(1)
        process.send_signal(number)
        output, errors = process.communicate(timeout=10)
        assert (process.returncode, output, errors) == (0, "", "")
        assert read_all(hanging) == b""
        for sock in (hanging, streaming):
            sock.close()


def test_json_announces_the_address_for_a_program() -> None:
    with running("--json", "--tokens", "3") as process:
        said = json.loads(process.stdout.readline())
        assert said["event"] == "listening"
        assert said["url"] == f"http://127.0.0.1:{said['port']}/v1"
        assert said["pid"] == process.pid
        assert ask(said["url"], "hi").json["usage"]["completion_tokens"] == 3


def test_a_port_that_is_taken_is_one_sentence_and_exit_1() -> None:
    with Simulator() as sim, running("--port", str(sim.port)) as process:
        output, errors = process.communicate(timeout=10)
        assert (process.returncode, output) == (1, "")
        assert errors.startswith(f"Error: cannot listen on 127.0.0.1 port {sim.port}")
        assert errors.count("\n") == 1


def test_the_child_process_is_used_like_the_thread() -> None:
    with SimulatorProcess(delta_ms=1.0) as sim:
        ask(sim.url, "[[sim: marker=a]]")
        wait_for(lambda: sim.stats()["completed"])
        assert sim.paid("a") == 1
        assert sim.calls("b") == []
        sim.reset()
        assert sim.stats()["requests"] == 0
        assert sim.stop() == 0


def test_the_child_ends_with_its_parent() -> None:
    script = (
        "import os, signal; from aijobs.simulator import SimulatorProcess; s = SimulatorProcess(); s.start();"
        "print(s.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False, cwd=_CHECKOUT
    )
    pid = int(parent.stdout)
    wait_for(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_that_cannot_listen_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with Simulator() as sim:
        with pytest.raises(RuntimeError, match="did not start"):
            SimulatorProcess(port=sim.port).start()
        assert "in use" in capfd.readouterr().err


def test_it_bears_400_connections_at_once() -> None:
    with SimulatorProcess() as sim:
        crowd = 400
        sockets = [send_raw(sim.url, chat_body("[[sim: hang_after=1]]", stream=True)) for _ in range(crowd)]
        for sock in sockets:
            assert sock.recv(1) == b"H"
        assert sim.stats()["open"] == crowd
        assert ask(sim.url, "still there").status == 200
        for sock in sockets:
            sock.close()
        wait_for(lambda: sim.stats()["open"] == 0)
        assert sim.stats()["peer_closed"] == crowd


def test_100_clients_at_once_are_answered_and_counted() -> None:
    clients, each = 100, 5
    with SimulatorProcess() as sim:
        wrong: list[object] = []

        def client(number: int) -> None:
            for _ in range(each):
                reply = ask(sim.url, f"[[sim: marker=c{number} text=t{number} delta_ms=5 tokens=4]]", stream=True)
                if reply.text != f"t{number}" or reply.events[-1] != "[DONE]":
                    wrong.append((number, reply))

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        wait_for(lambda: sim.stats()["open"] == 0)
        stats = sim.stats()
        assert stats["completed"] == stats["generations"] == clients * each
        assert set(map(str, stats["by_marker"].values())) == {str({"posts": each, "generations": each})}


def test_every_directive_and_error_is_in_its_readme() -> None:
    readme = (_CHECKOUT / "aijobs/simulator/README.md").read_text()
    assert [name for name in NAMES if f"`{name}=" not in readme] == []
    assert [name for name in ERRORS if f"`{name}`" not in readme] == []
