"""The private PostgreSQL starts for anybody, anywhere, again after a crash, and is nobody else's."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from aijobs import server_programs
from aijobs.embedded import EmbeddedError, EmbeddedPostgres
from aijobs.server_programs import find_binaries

CHECKOUT = Path(__file__).parents[2]
PGBIN = Path(os.environ["PGBIN"]) if os.environ.get("PGBIN") else None
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about what root must do differently")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="aijobs-embedded-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


def server(folder: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder, pgbin=PGBIN, ephemeral=True)


def ask(running: EmbeddedPostgres, question: str) -> object:
    with psycopg.connect(running.dsn, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone() if question.startswith(("SHOW", "SELECT")) else None
        if row is None:
            connection.execute(question.encode())
        return row and row[0]


def postmaster(running: EmbeddedPostgres) -> int:
    return int((running.data_folder / "postmaster.pid").read_text().split("\n")[0])


def runs(pid: int) -> bool:
    """Whether a process is alive; one that has ended and was not waited for has no command line any more."""
    command_line = Path(f"/proc/{pid}/cmdline")
    return command_line.exists() and command_line.read_bytes() != b""


def test_it_keeps_its_data_and_is_open_to_nobody_else(folder: Path) -> None:
    with server(folder) as first:
        ask(first, "CREATE TABLE kept AS SELECT 7 AS n")
        assert ask(first, "SHOW listen_addresses") == ""
        sockets = Path(str(ask(first, "SHOW unix_socket_directories")))
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert stat.S_IMODE(first.data_folder.stat().st_mode) == 0o700
        pid = postmaster(first)
        assert os.getsid(pid) != os.getsid(0), "Ctrl-C in our terminal would reach the server"
    assert not sockets.exists()
    assert not runs(pid)
    with server(folder) as again:
        assert ask(again, "SELECT n FROM kept") == 7


def test_a_second_owner_is_refused_with_a_sentence(folder: Path) -> None:
    with server(folder) as first:
        with pytest.raises(EmbeddedError, match="in use by another process"):
            server(folder).start()
        assert ask(first, "SELECT 1") == 1


# Starts a server, says so, and waits to be killed.
OWNER = """
import sys
from pathlib import Path
from aijobs.embedded import EmbeddedPostgres

running = EmbeddedPostgres(Path(sys.argv[1]), pgbin=Path(sys.argv[2]), ephemeral=True).start()
print(running.dsn, flush=True)
sys.stdin.read()
"""


def test_it_starts_over_what_a_killed_owner_left_running(folder: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(folder), str(find_binaries(PGBIN))]
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        dsn = owner.stdout.readline().strip()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        owner.kill()
    shutil.rmtree(dsn.split()[0].removeprefix("host="))
    with server(folder) as next_one:
        assert ask(next_one, "SELECT n FROM kept") == 7


def test_a_stale_pid_file_that_names_a_living_process_harms_neither(folder: Path) -> None:
    with server(folder) as first:
        text = (first.data_folder / "postmaster.pid").read_text()
        data_folder = first.data_folder
    with subprocess.Popen(["sleep", "60"]) as bystander:
        (data_folder / "postmaster.pid").write_text(text.replace(text.split("\n")[0], str(bystander.pid), 1))
        with server(folder) as again:
            assert ask(again, "SELECT 1") == 1
        assert bystander.poll() is None
        bystander.kill()


def test_a_crashed_server_recovers(folder: Path) -> None:
    with server(folder) as running:
        ask(running, "CREATE TABLE kept AS SELECT 7 AS n")
        os.kill(postmaster(running), signal.SIGQUIT)
        running.stop_server("immediate")
        running.start_server()
        assert ask(running, "SELECT n FROM kept") == 7


def test_a_half_made_data_folder_is_made_anew(folder: Path) -> None:
    (folder / "postgres" / "unfinished" / "base").mkdir(parents=True)
    with server(folder) as running:
        assert ask(running, "SELECT 1") == 1
        assert not running.data_folder.with_name("unfinished").exists()


def test_data_of_another_version_is_told_apart(folder: Path) -> None:
    with server(folder) as running:
        version = running.data_folder / "PG_VERSION"
    version.write_text("9.6\n")
    with pytest.raises(EmbeddedError, match=r"did not start: .*PostgreSQL version 9\.6"):
        server(folder).start()


def test_a_folder_without_programs_is_refused_by_the_name_of_its_setting(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match="AIJOBS_PGBIN"):
        EmbeddedPostgres(folder, pgbin=folder)


@as_root
def test_root_can_run_it_from_where_the_servers_user_cannot_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout below /root, with its programs in a venv there, made under a strict umask."""
    monkeypatch.setattr(server_programs, "_ROOTS_PLACE", folder / "var-lib-aijobs")
    closed = folder / "root"
    closed.mkdir(mode=0o700)
    install = find_binaries(PGBIN).parent
    package = install.parent
    shutil.copytree(install, closed / package.name / install.name, symlinks=True)
    if package.with_name(f"{package.name}.libs").exists():
        shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs", symlinks=True)
    before = os.umask(0o077)
    try:
        with EmbeddedPostgres(
            closed / "x", pgbin=closed / package.name / install.name / "bin", ephemeral=True
        ) as running:
            assert ask(running, "SELECT 1") == 1
            assert running.data_folder.is_relative_to(folder / "var-lib-aijobs")
            assert running.log_file.is_relative_to(folder / "var-lib-aijobs")
            with pytest.raises(EmbeddedError, match="in use by another process"):
                EmbeddedPostgres(closed / "x", pgbin=PGBIN).start()
    finally:
        os.umask(before)
