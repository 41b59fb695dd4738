"""Who may import whom, and what may stand where: rules that keep each part replaceable, checked on the syntax tree."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The part that a module belongs to is the longest name here that it starts with. A part may import itself and the parts
# of lower layers; parts of one layer do not know each other.
LAYERS: dict[int, tuple[str, ...]] = {
    0: ("aijobs.domain",),
    1: ("aijobs.errors", "aijobs.clock"),
    # What reads streams and Retry-After serves both sides: the providers' answers, and the client that reads ours.
    2: ("aijobs.config", "aijobs.logs", "aijobs.gunicorn_file", "aijobs.sse", "aijobs.retry_after"),
    3: ("aijobs.store", "aijobs.providers", "aijobs.metrics", "aijobs.kinds", "aijobs.simulator", "aijobs.embedded"),
    # The client knows the API by its HTTP contract alone, and runs where no server is installed with a database.
    4: ("aijobs.api", "workers", "aijobs.testing", "aijobs.client"),
    5: ("wsgi", "gunicorn_conf", "aijobs.cli"),
}
# Modules that are one part in two files, or belong to a part in spite of their names.
SAME_PART = {
    "aijobs.config_file": "aijobs.config",
    "aijobs.server_programs": "aijobs.embedded",
    "aijobs.__main__": "aijobs.cli",
}
NEVER = {
    ("aijobs.api", "aijobs.providers"),
    ("aijobs.api", "aijobs.simulator"),
    ("aijobs.api", "aijobs.embedded"),
    *(
        ("aijobs.client", part)
        for part in ("aijobs.store", "aijobs.providers", "aijobs.metrics", "aijobs.kinds", "aijobs.simulator")
    ),
}
# Each package from outside, and the parts that may know of it.
OWNERS: dict[str, tuple[str, ...]] = {
    "psycopg": ("aijobs.store",),
    "psycopg_pool": ("aijobs.store",),
    # The client's exchanges are with our own API: none of what the providers' transport records matters there.
    "requests": ("aijobs.providers", "aijobs.client"),
    "urllib3": ("aijobs.providers", "aijobs.client"),
    "flask": ("aijobs.api",),
    "werkzeug": ("aijobs.api",),
    "itsdangerous": ("aijobs.api",),
    "marshmallow": ("aijobs.api", "aijobs.kinds"),
    "statsd": ("aijobs.metrics",),
    "click": ("aijobs.cli",),
    "gunicorn": ("gunicorn_conf", "aijobs.api"),
}
# What a function of its arguments alone has no use for.
CLOCKS_AND_DICE = {"random", "secrets", "time"}
INPUT_AND_OUTPUT = {"asyncio", "io", "logging", "os", "pathlib", "select", "signal", "socket", "subprocess", "tempfile"}
IMPURE_MODULES = CLOCKS_AND_DICE | INPUT_AND_OUTPUT | {"multiprocessing", "threading"}
IMPURE_NAMES = frozenset({"open", "print", "input", "uuid1", "uuid4", "now", "utcnow", "today"})
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|LISTEN|UNLISTEN|NOTIFY|CREATE|ALTER|DROP|TRUNCATE|COPY|LOCK TABLE"
    r"|SET|BEGIN|COMMIT|ROLLBACK|PREPARE|EXPLAIN|VACUUM)\b(?![A-Z_]*:)"
)
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "putenv"})
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "core", "misc"})
# Where anything at all is caught: the border of an attempt, whose handler is a stranger's code; a step, whose request
# may be out when its adapter breaks; the end of a forked process, which must not go on as its parent; a worker's start,
# and a web process's, which import a stranger's module; a webhook's try, whose URL and answer are a stranger's; and the
# API's 500.
CATCH_ALL = frozenset(
    {
        "aijobs.kinds",
        "workers.attempt",
        "workers.step",
        "workers.supervisor",
        "workers.worker",
        "workers.courier",
        "aijobs.api.problems",
    }
)


def sources() -> Iterator[tuple[str, str]]:
    """The name and text of every module of the project."""
    files = [*(ROOT / "aijobs").rglob("*.py"), *(ROOT / "workers").rglob("*.py"), ROOT / "wsgi.py"]
    for path in sorted(files):
        if path.exists():
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path.read_text(encoding="utf-8")
    gunicorn = ROOT / "gunicorn.conf.py"
    if gunicorn.exists():
        yield "gunicorn_conf", gunicorn.read_text(encoding="utf-8")


def part_of(module: str) -> tuple[str, int] | None:
    """The part a module, or a name in it, belongs to, and its layer."""
    for name, part in SAME_PART.items():
        if _is_within(module, name):
            module = part
    for layer, parts in LAYERS.items():
        for part in parts:
            if _is_within(module, part):
                return part, layer
    return None


def _is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported anywhere in the tree; `from a import b` may mean the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def complaints(module: str, text: str) -> list[str]:
    """What a module does that it may not."""
    tree = ast.parse(text)
    if module == "aijobs":
        return [f"{module} imports {name}" for name in imports(tree) if not name.startswith("__future__")]
    found = part_of(module)
    if found is None:
        return [f"{module} belongs to no part: give it a place in LAYERS"]
    part, layer = found
    told = [*_import_complaints(module, part, layer, tree), *_text_complaints(module, part, tree)]
    if VAGUE_NAMES & set(module.split(".")):
        told.append(f"{module} has a name that says nothing")
    return told


def _import_complaints(module: str, part: str, layer: int, tree: ast.AST) -> Iterator[str]:
    for name in imports(tree):
        top = name.split(".")[0]
        if name.startswith("."):
            yield f"{module} imports relatively: {name}"
        elif top in ("aijobs", "workers", "wsgi"):
            yield from _inner_complaints(module, part, layer, name)
        elif top not in sys.stdlib_module_names:
            if part not in OWNERS.get(top, ()):
                yield f"{module} imports {top}, which belongs to {OWNERS.get(top, 'nobody')}"
        elif part == "aijobs.domain" and top in IMPURE_MODULES:
            yield f"{module} imports {top}: the domain has no clock, dice, input or output"


def _inner_complaints(module: str, part: str, layer: int, name: str) -> Iterator[str]:
    if name in ("aijobs", "aijobs.__version__"):
        return
    other = part_of(name)
    if other is None:
        if name != "workers":
            yield f"{module} imports {name}, which belongs to no part"
        return
    other_part, other_layer = other
    if other_part != part and (other_layer >= layer or (part, other_part) in NEVER):
        yield f"{module} ({part}) imports {name} ({other_part})"


def _text_complaints(module: str, part: str, tree: ast.AST) -> Iterator[str]:
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=used) if used in ENVIRONMENT and part != "aijobs.config":
                yield f"{module}:{node.lineno} reads the environment"
            case ast.ImportFrom(module="os", names=names) if ENVIRONMENT & {alias.name for alias in names}:
                yield f"{module}:{node.lineno} imports the environment by another name"
            case ast.Constant(value=str(text)) if id(node) not in documentation and STATEMENT.match(text):
                yield f"{module}:{node.lineno} holds SQL: {text[:40]!r}"
            case ast.ExceptHandler() if _catches_all(node) and module not in CATCH_ALL:
                yield f"{module}:{node.lineno} catches everything"
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if part == "aijobs.domain":
                if called in IMPURE_NAMES:
                    yield f"{module}:{node.lineno} calls {called}: the domain has no clock, dice, input or output"


def _catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether it catches whatever comes and does not, as its last act, raise it again."""
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    wide = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in named
    )
    last = handler.body[-1]
    return wide and not (isinstance(last, ast.Raise) and last.exc is None)


@pytest.mark.parametrize(("module", "text"), [pytest.param(*source, id=source[0]) for source in sources()])
def test_the_module_keeps_the_rules(module: str, text: str) -> None:
    assert complaints(module, text) == []


@pytest.mark.parametrize(
    ("module", "text", "complaint"),
    [
        ("aijobs.domain.jobs", "import requests", "imports requests"),
        ("aijobs.domain.jobs", "import time", "no clock"),
        ("aijobs.domain.jobs", "from datetime import datetime\nx = datetime.now()", "calls now"),
        ("aijobs.domain.jobs", "from aijobs.errors import AijobsError", "(aijobs.errors)"),
        ("aijobs.store.jobs", "def f():\n    import aijobs.providers.base", "(aijobs.providers)"),
        ("aijobs.store.jobs", "from aijobs import metrics", "(aijobs.metrics)"),
        ("aijobs.kinds.chat", "from aijobs.store import jobs", "(aijobs.store)"),
        ("aijobs.api.jobs", "from aijobs.providers.registry import build_adapter", "(aijobs.providers)"),
        ("aijobs.api.jobs", "import workers.worker", "(workers)"),
        ("aijobs.api.jobs", "import psycopg.errors", "imports psycopg"),
        ("workers.worker", "from aijobs.api import jobs", "(aijobs.api)"),
        ("aijobs.client.client", "from aijobs.store import jobs", "(aijobs.store)"),
        ("aijobs.client.client", "from aijobs.providers.transport import Transport", "(aijobs.providers)"),
        ("aijobs.client.client", "from aijobs.api import problems", "(aijobs.api)"),
        ("aijobs.config", "from aijobs.store import db", "(aijobs.store)"),
        ("workers.worker", "from flask import Flask", "imports flask"),
        ("workers.worker", "import numpy", "belongs to nobody"),
        ("workers.worker", "from . import slots", "relatively"),
        ("workers.worker", "import os\nx = os.environ['HOME']", "environment"),
        ("workers.worker", "import os\nos.getenv('X')", "environment"),
        ("workers.worker", "from os import getenv", "environment"),
        ("aijobs.store.jobs", "x = 'SELECT 1'", "holds SQL"),
        ("aijobs.store.jobs", "x = f'LISTEN {name}'", "holds SQL"),
        ("aijobs.store.jobs", "try:\n    f()\nexcept Exception:\n    pass", "catches everything"),
        ("aijobs.store.jobs", "try:\n    f()\nexcept (ValueError, BaseException):\n    g()", "catches everything"),
        ("aijobs.store.utils", "", "says nothing"),
        ("aijobs.surprise", "", "no part"),
    ],
)
def test_a_planted_offence_is_seen(module: str, text: str, complaint: str) -> None:
    assert any(complaint in told for told in complaints(module, text))


def test_what_is_allowed_is_not_complained_of() -> None:
    assert (
        complaints("aijobs.cli.work", "from workers import worker\nimport click\nfrom aijobs import __version__") == []
    )
    assert complaints("aijobs.store.db", '"""SELECT nothing."""\nimport psycopg\nx = "Selected rows"') == []
    assert complaints("aijobs.store.db", "try:\n    f()\nexcept BaseException:\n    g()\n    raise") == []
