"""Log lines: one JSON object each, or key=value for a person. Never a prompt, a result or a secret."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

# What a record may carry beside its message, set with logging's `extra`.
FIELDS = ("job_id", "attempt", "request_id", "worker_id", "route", "status", "ms")


class JsonFormatter(logging.Formatter):
    """One JSON object a line, so that a line cannot be forged from inside a value."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        line.update({name: value for name in FIELDS if (value := getattr(record, name, None)) is not None})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """A line for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        pairs = [f"{name}={getattr(record, name)}" for name in FIELDS if getattr(record, name, None) is not None]
        said = " ".join([record.getMessage(), *pairs])
        printable = "".join(character if character.isprintable() else " " for character in said)
        line = f"{clock} {record.levelname.lower():<7} [{record.process}] {printable}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(log_format: str, *, level: int = logging.INFO) -> None:
    """Send all logs to standard error in the given format, `json` or `text`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # The pool tells of each failed reconnect; our own line says it once, with what it means.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
