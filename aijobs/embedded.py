"""A private PostgreSQL server for `aijobs dev`, the demo, tests and benchmarks. Never for production.

It listens on no network: only on a socket in a folder that nobody else may enter. That needs no port and no password,
so that none can be taken, guessed or left lying about.
"""

from __future__ import annotations

import fcntl
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO

from aijobs.server_programs import EmbeddedError, ServerPrograms

__all__ = ["EmbeddedError", "EmbeddedPostgres"]

_START_SECONDS = 60
# A socket's whole path must fit the kernel's 108 bytes, its file name of 14 included.
_LONGEST_SOCKET_FOLDER = 90
_ALWAYS = (
    "listen_addresses=",
    "port=5432",
    "unix_socket_permissions=0700",
    "log_destination=stderr",
    "logging_collector=off",
)
# A test's database need not survive a power cut; everything else about it is as in production.
_EPHEMERAL = ("fsync=off", "full_page_writes=off", "shared_buffers=64MB", "max_connections=200")


class EmbeddedPostgres:
    """A server on a data folder of its own; one process at a time may run it. Use as a context manager.

    `ephemeral` trades durability for speed: for tests alone.
    """

    def __init__(self, folder: Path, *, pgbin: Path | None = None, ephemeral: bool = False) -> None:
        self._folder = folder.absolute()
        self._ephemeral = ephemeral
        self._programs = ServerPrograms(pgbin)
        self._sockets: Path | None = None
        self._lock: IO[str] | None = None
        self._place = self._folder

    @property
    def dsn(self) -> str:
        """Where the running server is."""
        if self._sockets is None:
            raise EmbeddedError("the server is not running")
        return f"host={self._sockets} port=5432 user=postgres dbname=postgres"

    @property
    def data_folder(self) -> Path:
        """Where the data is: below the folder that was given, unless the server's user could not reach it there."""
        return self._place / "postgres" / "data"

    @property
    def log_file(self) -> Path:
        return self._place / "postgres" / "data.log"

    def start(self) -> EmbeddedPostgres:
        """Start the server, making its data folder if need be. Raises EmbeddedError."""
        try:
            self._take_lock()
            self._place = self._programs.place_for(self._folder)
            self._programs.make_folder(self._place / "postgres")
            self.log_file.touch(mode=0o600)
            self._programs.give(self.log_file)
            if not self.data_folder.exists():
                self._initialise()
            self._clear_what_a_killed_process_left()
            self._sockets = self._make_socket_folder()
            self.start_server()
        except OSError as error:
            self.stop()
            raise EmbeddedError(f"the private PostgreSQL cannot be run in {self._folder}: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def start_server(self) -> None:
        """Start the server on the same socket as before; `start` has been called."""
        settings = (*_ALWAYS, *(_EPHEMERAL if self._ephemeral else ()), f"unix_socket_directories={self._sockets}")
        options = " ".join(f"-c {shlex.quote(setting)}" for setting in settings)
        started = self._control("start", "-w", "-t", str(_START_SECONDS), "-l", str(self.log_file), "-o", options)
        if started.returncode != 0:
            raise EmbeddedError(f"the private PostgreSQL did not start: {self._last_words()} (more in {self.log_file})")

    def stop_server(self, mode: str = "fast") -> None:
        """Stop the server only: `fast` in order, `immediate` as a crash would."""
        if self._control("stop", "-w", "-m", mode).returncode != 0 and self._is_running():
            self._control("stop", "-w", "-m", "immediate")

    def stop(self) -> None:
        """Stop the server and give the data folder free."""
        if self._sockets is not None:
            if self._is_running():
                self.stop_server()
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> EmbeddedPostgres:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _take_lock(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._folder / "lock", "w")  # noqa: SIM115 - held until stop
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sentence = f"{self._folder} is in use by another process: stop that one, or set AIJOBS_DATA_DIR"
            raise EmbeddedError(sentence) from None

    def _initialise(self) -> None:
        # Made aside and moved when complete: a data folder that was half made could be neither started nor made again.
        aside = self.data_folder.with_name("unfinished")
        shutil.rmtree(aside, ignore_errors=True)
        self._programs.make_folder(aside)
        made = self._programs.run(
            "initdb", "-D", str(aside), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"
        )
        if made.returncode != 0:
            raise EmbeddedError(f"initdb failed: {made.stdout.strip()}")
        aside.rename(self.data_folder)

    def _clear_what_a_killed_process_left(self) -> None:
        """Stop a server that outlived its owner, or remove the traces of one that did not.

        We hold the lock, so nobody uses it. The process id in its file may by now be that of any other process, which
        pg_ctl would signal and beside which PostgreSQL would refuse to start.
        """
        if self._is_running():
            self.stop_server()
        (self.data_folder / "postmaster.pid").unlink(missing_ok=True)

    def _is_running(self) -> bool:
        try:
            pid = int((self.data_folder / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return False
        return str(self.data_folder) in _command_line(pid)

    def _make_socket_folder(self) -> Path:
        usual = Path(tempfile.gettempdir())
        fits = len(str(usual)) + len("/aijobs-pg-12345678") <= _LONGEST_SOCKET_FOLDER
        made = Path(
            tempfile.mkdtemp(prefix="aijobs-pg-", dir=usual if fits and self._programs.can_reach(usual) else "/tmp")
        )
        self._programs.give(made)
        return made

    def _control(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._programs.run("pg_ctl", command, "-D", str(self.data_folder), *arguments)

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()[-10:] if self.log_file.exists() else []
        told = [line for line in lines if any(f"{word}:  " in line for word in ("FATAL", "PANIC", "DETAIL", "HINT"))]
        return " ".join(line.split("] ", 1)[-1].strip() for line in told or lines[-1:])


def _command_line(pid: int) -> str:
    """The command line of a process; empty if there is none of this id."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    asked = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout
