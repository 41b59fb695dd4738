"""Where gunicorn's configuration is: inside the package when installed, at the top of a checkout."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def gunicorn_file() -> Path:
    """The path of gunicorn.conf.py. Raises FileNotFoundError naming both places."""
    package = Path(str(resources.files("aijobs")))
    for path in (package / "gunicorn.conf.py", package.parent / "gunicorn.conf.py"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"no gunicorn.conf.py in {package} nor in {package.parent}")
