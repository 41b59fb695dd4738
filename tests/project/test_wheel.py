"""What is installed from the wheel works from anywhere and holds the same statements as the checkout."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Asks an installed aijobs what it is and where its files are; prints JSON.
QUESTIONS = """
import hashlib, importlib.util, json
import aijobs, workers
from aijobs.gunicorn_file import gunicorn_file
from aijobs.store.queries import query, sql_root

files = sorted(sql_root().rglob("*.sql"))
for path in files:
    if "migrations" not in path.parts:
        query(str(path.relative_to(sql_root()).with_suffix("")))
print(json.dumps({
    "places": [
        aijobs.__file__, workers.__file__, importlib.util.find_spec('wsgi').origin,
        str(gunicorn_file()), str(sql_root()),
    ],
    "sql": {str(path.relative_to(sql_root())): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
}))
"""


def run(*command: object, cwd: Path = Path("/")) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIJOBS_", "PYTHON"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel that is built from it, not from the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with aijobs installed from the wheel.

    Its dependencies are those of the environment that runs the tests, so that nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", folder)
    (wheel,) = built.glob("*.whl")
    run(folder / "bin" / "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(_dependency_folders()))
    return folder / "bin"


def _dependency_folders() -> list[str]:
    """Where this environment's packages are, without the checkout that an editable install would put on the path."""
    return [entry for entry in sys.path if entry.endswith("site-packages")]


def test_an_installed_aijobs_runs_from_anywhere(installed: Path) -> None:
    assert run(installed / "aijobs", "--version") == "aijobs, version 0.1.0\n"


def test_everything_is_taken_from_the_installation_and_equals_the_checkout(installed: Path) -> None:
    answers = json.loads(run(installed / "python", "-c", QUESTIONS))
    for place in answers["places"]:
        assert Path(place).is_relative_to(installed.parent), place
    checkout = {
        str(path.relative_to(ROOT / "sql")): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ROOT / "sql").rglob("*.sql")
    }
    assert answers["sql"] == checkout


def test_the_wheel_holds_the_product_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"aijobs", "workers", "wsgi.py"}
    files = ("sql/claims/claim.sql", "gunicorn.conf.py", "py.typed", "api/demo/page.html", "deploy/nginx.conf")
    assert {f"aijobs/{name}" for name in files} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or "tests/" in name or "/test_" in name]


def test_the_source_archive_can_be_tested_and_built(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    needed = {
        "sql/claims/claim.sql",
        "tests/conftest.py",
        "Makefile",
        "gunicorn.conf.py",
        "pyproject.toml",
        "README.md",
    }
    assert needed <= names
    assert not [name for name in names if name.startswith((".venv", ".aijobs", ".git/"))]


def test_the_checkout_has_no_second_copy_of_what_moves_into_the_package() -> None:
    """It would win over the real one, silently."""
    assert not (ROOT / "aijobs" / "sql").exists()
    assert not (ROOT / "aijobs" / "gunicorn.conf.py").exists()
