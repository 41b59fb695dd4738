"""Declaring a handler, having it imported, and testing it without a database."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from marshmallow import Schema, fields

from aijobs.config import Settings
from aijobs.config_file import KindSettings
from aijobs.domain.failures import Usage
from aijobs.errors import ConfigError, PermanentError
from aijobs.kinds import Answer, OutputRejected, Policy, handler, import_handlers, import_what_there_is, load
from aijobs.testing import run_handler


class Payload(Schema):
    text = fields.String(required=True)
    pages = fields.Integer(load_default=1)


@handler("analyze", schema=Payload, policy=Policy(on_unknown="retry", max_attempts=5, backoff_seconds=9.0))
def analyze(attempt: Any) -> dict[str, Any]:
    draft = attempt.call("draft", {"model": "m", "prompt": attempt.payload["text"]})
    attempt.progress({"done": 1, "of": 2})
    attempt.emit(draft.text)
    if attempt.cancelled or attempt.deadline < 1:
        return {"stopped": True}
    if draft.text == "bad":
        raise OutputRejected("no good", step="draft")
    polished = attempt.chat("polish", messages=[{"role": "user", "content": draft.text}], max_tokens=5)
    return {"text": polished.text, "pages": attempt.payload["pages"], "kind": attempt.kind.name}


def plain(attempt: Any) -> Any:
    return attempt.payload


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("myapp_jobs")
    vars(made).update(analyze=analyze, plain=plain, number=7)
    monkeypatch.setitem(sys.modules, "myapp_jobs", made)
    return made


def kinds_of(**kinds: KindSettings) -> Any:
    return load(Settings(database_url="postgresql://x", kinds=kinds, providers={}))


@pytest.mark.usefixtures("module")
def test_a_handlers_policy_speaks_where_the_configuration_says_nothing() -> None:
    said = KindSettings(
        "analyze", handler="myapp_jobs:analyze", on_unknown="hold", max_attempts=2, given=frozenset({"max_attempts"})
    )
    kind = import_handlers(kinds_of(analyze=said))["analyze"]
    assert kind.settings.on_unknown == "retry" and kind.settings.backoff_seconds == 9.0
    assert kind.settings.max_attempts == 2
    assert isinstance(kind.schema, Payload)
    assert kind.read({"text": "a", "new": 1, "pages": "3"}) == {"text": "a", "pages": 3}
    with pytest.raises(PermanentError, match="text") as refused:
        kind.read({"pages": "secret"})
    assert refused.value.code == "invalid_payload" and "secret" not in str(refused.value)


@pytest.mark.usefixtures("module")
def test_a_plain_function_takes_any_payload() -> None:
    kind = import_handlers(kinds_of(plain=KindSettings("plain", handler="myapp_jobs:plain")))["plain"]
    assert kind.schema is None and kind.read({"a": 1}) == {"a": 1}


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("myapp_jobs:analyze", "declares itself for 'analyze'"),
        ("myapp_jobs:nothing", "no attribute 'nothing'"),
        ("myapp_jobs:number", "no function"),
        ("no_such_module:f", "No module named"),
    ],
)
def test_what_cannot_be_a_handler_is_named(path: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    kinds = kinds_of(other=KindSettings("other", handler=path, on_unknown="hold"))
    with pytest.raises(ConfigError, match=r"\[kinds.other\]") as refused:
        import_handlers(kinds)
    assert words in str(refused.value)
    if "declares" not in words:
        with caplog.at_level(logging.WARNING):
            assert import_what_there_is(kinds)["other"].schema is None
        assert "checked by the workers alone" in caplog.text


def test_a_module_that_raises_does_not_stop_a_process_that_needs_only_its_schema(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinds = kinds_of(other=KindSettings("other", handler="tests.workers.broken_handlers:f", on_unknown="hold"))
    with caplog.at_level(logging.WARNING):
        assert import_what_there_is(kinds)["other"].schema is None
    assert "ZeroDivisionError" in caplog.text


def test_a_policy_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("odd_jobs")
    vars(made)["odd"] = handler("odd", policy=Policy(on_unknown="perhaps", max_attempts=99))(lambda attempt: None)
    monkeypatch.setitem(sys.modules, "odd_jobs", made)
    with pytest.raises(ConfigError) as refused:
        import_handlers(kinds_of(odd=KindSettings("odd", handler="odd_jobs:odd")))
    assert len(refused.value.problems) == 2


def test_a_schema_that_is_none_is_refused_where_it_stands() -> None:
    not_a_schema: Any = {"text": "str"}
    with pytest.raises(TypeError, match="marshmallow Schema"):
        handler("x", schema=not_a_schema)


def test_the_working_directory_can_be_imported_from_and_shadows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aijobs.py").write_text("raise SystemError('shadowed')")
    (tmp_path / "own_jobs.py").write_text("def f(attempt): return 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert import_handlers(kinds_of(own=KindSettings("own", handler="own_jobs:f")))["own"].run(None) == 1
    assert sys.path[-1] == str(tmp_path)


def test_a_handler_is_tested_without_a_database() -> None:
    run = run_handler(
        analyze,
        {"text": "x", "pages": "2"},
        replies={"draft": "first", "polish": lambda body: Answer(body["messages"][0]["content"], "stop", "m", Usage())},
    )
    assert run.result == {"text": "first", "pages": 2, "kind": "analyze"}
    assert [step for step, _ in run.calls] == ["draft", "polish"]
    assert run.calls[0][1] == {"model": "m", "prompt": "x"}
    assert run.progress == [{"done": 1, "of": 2}] and run.emitted == "first"


@pytest.mark.parametrize(
    ("replies", "expected"),
    [({"draft": "bad"}, OutputRejected), ({"draft": KeyError("k")}, KeyError), ({"other": "x"}, AssertionError)],
)
def test_what_a_handler_raises_is_raised(replies: dict[str, Any], expected: type[Exception]) -> None:
    with pytest.raises(expected):
        run_handler(analyze, {"text": "x"}, replies=replies)


def test_a_cancel_and_a_deadline_can_be_tried() -> None:
    for given in ({"cancelled": True}, {"deadline": 0.5}):
        assert run_handler(analyze, {"text": "x"}, replies={"draft": "d"}, **given).result == {"stopped": True}  # type: ignore[arg-type]


def test_a_payload_that_the_schema_refuses_is_refused() -> None:
    with pytest.raises(PermanentError):
        run_handler(analyze, {})


def twice(attempt: Any) -> None:
    attempt.call("a", {})
    attempt.call("a", {})


@pytest.mark.parametrize(
    "function",
    [twice, lambda attempt: float("nan"), lambda attempt: object(), lambda attempt: attempt.progress({1, 2})],
)
def test_what_no_worker_would_take_is_not_taken(function: Callable[[Any], Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        run_handler(function, {}, replies={"a": "x"})
