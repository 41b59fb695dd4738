"""A log line is one line, and says of which job it speaks."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from aijobs.logs import JsonFormatter, TextFormatter


def record(message: str, *arguments: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("workers.attempt", logging.WARNING, __file__, 1, message, arguments, None)
    made.__dict__.update(extra)
    return made


def test_a_json_line_holds_the_event_and_its_fields() -> None:
    line = JsonFormatter().format(record("attempt %s", "failed", job_id="j-1", attempt=2, unlisted="secret"))
    fields = json.loads(line)
    assert fields["time"].endswith("+00:00")
    assert {name: fields[name] for name in ("level", "logger", "message", "job_id", "attempt")} == {
        "level": "warning",
        "logger": "workers.attempt",
        "message": "attempt failed",
        "job_id": "j-1",
        "attempt": 2,
    }
    assert "secret" not in line


def test_a_text_line_holds_the_event_and_its_fields() -> None:
    line = TextFormatter().format(record("answered", route="create", status=503))
    assert " warning [" in line
    assert line.endswith("] answered route=create status=503")


def test_no_message_or_field_can_forge_a_line() -> None:
    hostile = record("first\nsecond\r\x1b[31m", job_id="a\nb=\x00")
    for formatter in (JsonFormatter(), TextFormatter()):
        line = formatter.format(hostile)
        assert line.isprintable(), line


def test_a_traceback_stays_within_its_json_line() -> None:
    try:
        int("over\ntwo lines")
    except ValueError:
        failed = record("handler raised")
        failed.exc_info = sys.exc_info()
    line = JsonFormatter().format(failed)
    assert "\n" not in line
    assert "ValueError: invalid literal" in json.loads(line)["exception"]
    assert "\nTraceback" in TextFormatter().format(failed)
