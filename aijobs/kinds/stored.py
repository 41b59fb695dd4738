"""A job's result made from a stored answer, where the kind's result is that answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aijobs.domain.failures import Usage
from aijobs.kinds import Kind


def result_json(kind: Kind | None, answer: Mapping[str, Any], usage: Usage) -> str | None:
    """The result, as JSON text; None for a handler's kind, whose result only the handler can make."""
    if kind is None:
        return None
    match kind.settings.uses:
        case "chat":
            named = {name: answer[name] for name in ("text", "finish_reason", "model")}
            return json.dumps(named | {"usage": asdict(usage)})
        case "http":
            return json.dumps(answer.get("value"))
    return None
