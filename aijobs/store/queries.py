"""Named SQL: one file is one statement is one query, with an exact set of parameters."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

_PARAMETER = re.compile(r"%\((\w+)\)s")
_COMMENT_LINE = re.compile(r"^\s*--.*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement as it is sent, and the names it must be given.

    The text opens with the file's name as a comment, so that pg_stat_activity and the server's log name the file.
    """

    name: str
    text: str
    parameters: frozenset[str]

    def check(self, given: Mapping[str, object]) -> None:
        """Raise TypeError unless exactly the statement's parameters are given (the driver would ignore extra ones)."""
        if given.keys() != self.parameters:
            missing = sorted(self.parameters - given.keys())
            extra = sorted(given.keys() - self.parameters)
            raise TypeError(f"sql/{self.name}.sql: missing parameters {missing}, unexpected {extra}")


def sql_root() -> Path:
    """The folder of statements: inside the package when installed, beside it in a checkout.

    Raises FileNotFoundError naming both places if neither exists.
    """
    package = Path(str(resources.files("aijobs")))
    installed, checkout = package / "sql", package.parent / "sql"
    for root in (installed, checkout):
        if root.is_dir():
            return root
    raise FileNotFoundError(f"no SQL files in {installed} nor in {checkout}")


@functools.cache
def query(name: str) -> Query:
    """The statement in sql/<name>.sql. Raises FileNotFoundError for a name without a file."""
    source = (sql_root() / f"{name}.sql").read_text(encoding="utf-8")
    body = _COMMENT_LINE.sub("", source).strip().removesuffix(";")
    return Query(name, f"/* {name}.sql */ {body}", frozenset(_PARAMETER.findall(body)))


def names_in(folder: str) -> list[str]:
    """The names of the statements in a folder of sql/, in order."""
    return sorted(path.stem for path in (sql_root() / folder).glob("*.sql"))
