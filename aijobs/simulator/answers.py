"""What is answered: a text made from the prompt, in deltas, in the JSON of chat completions. No clock, no sockets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aijobs.simulator.directives import Script, without_scripts

MODELS = ("simulator-small", "simulator-large")
EMOJI = "\N{SLIGHTLY SMILING FACE}"
# The first half of a surrogate pair: JSON can say it, UTF-8 and PostgreSQL cannot.
_LONE_SURROGATE = "\ud83d"
_ECHO_CHARACTERS = 300
# The rule of thumb for English text.
_CHARACTERS_PER_TOKEN = 4


class InvalidRequest(ValueError):
    """A body that a provider would answer with 400. The text is sent back to the caller."""


@dataclass(frozen=True)
class Prompt:
    """What of a request body decides the answer."""

    model: str
    last_user_text: str
    tokens: int
    stream: bool
    include_usage: bool
    most_tokens: int | None


def read_prompt(body: bytes) -> Prompt:
    """Raises InvalidRequest."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON.") from None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("model"), str):
        raise InvalidRequest("model is missing.")
    messages = parsed.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise InvalidRequest("messages must be a list of messages.")
    texts = [(message.get("role"), _text_of(message.get("content"))) for message in messages]
    options = parsed.get("stream_options")
    return Prompt(
        model=parsed["model"],
        last_user_text=next((text for role, text in reversed(texts) if role == "user"), ""),
        tokens=sum(4 + len(text) // _CHARACTERS_PER_TOKEN for _, text in texts),
        stream=parsed.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        most_tokens=_positive(parsed.get("max_completion_tokens")) or _positive(parsed.get("max_tokens")),
    )


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    if content is None:
        return ""
    raise InvalidRequest("content must be a string, a list of parts or null.")


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


@dataclass(frozen=True)
class Answer:
    """The deltas of one answer, and how it is written down."""

    id: str
    created: int
    prompt: Prompt
    deltas: tuple[str, ...]
    finish_reason: str

    def completion(self, script: Script) -> dict[str, Any]:
        """The body of a reply that is not streamed."""
        message = {"role": "assistant", "content": "".join(self.deltas), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        usage = {} if script.usage == "off" else {"usage": self.usage()}
        return self._envelope("chat.completion", [choice]) | usage

    def opening(self) -> dict[str, Any]:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def delta(self, text: str) -> dict[str, Any]:
        return self._chunk({"content": text})

    def ending(self, script: Script) -> list[dict[str, Any]]:
        """The chunks after the last delta: the reason to stop and, where it was asked for, the usage."""
        last = self._chunk({}, finish_reason=self.finish_reason)
        if script.usage == "twice":
            last["usage"] = self.usage()
        wanted = script.usage == "twice" or (script.usage == "on" and self.prompt.include_usage)
        return [last, self._envelope("chat.completion.chunk", []) | {"usage": self.usage()}] if wanted else [last]

    def usage(self) -> dict[str, Any]:
        prompt, completion = self.prompt.tokens, len(self.deltas)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self.prompt.include_usage else {}
        return self._envelope("chat.completion.chunk", [choice]) | usage

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.prompt.model,
            "system_fingerprint": "aijobs-simulator",
            "choices": choices,
        }


def compose(prompt: Prompt, script: Script, *, reply_id: str, created: int) -> Answer:
    """The answer to a prompt: always the same for the same prompt and script."""
    deltas = _deltas(prompt, script)
    finish = script.finish or "stop"
    if prompt.most_tokens is not None and len(deltas) > prompt.most_tokens:
        deltas = deltas[: prompt.most_tokens]
        finish = script.finish or "length"
    if script.split_emoji:
        deltas.append(EMOJI)
    if script.lone_surrogate:
        deltas.append(_LONE_SURROGATE)
    return Answer(reply_id, created, prompt, tuple(deltas), finish)


def _deltas(prompt: Prompt, script: Script) -> list[str]:
    if script.text is not None:
        return _words(script.text) if script.tokens is None else _even_parts(script.text, script.tokens)
    echo = without_scripts(prompt.last_user_text)[:_ECHO_CHARACTERS]
    words = _words(f"Simulated answer to: {echo or '(no text)'}")
    if script.tokens is None:
        return words
    # Repeated as often as it takes; the first word alone has no space before it.
    repeated = [" " + words[number % len(words)].lstrip() for number in range(script.tokens)]
    return [repeated[0].lstrip(), *repeated[1:]] if repeated else []


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+", text)


def _even_parts(text: str, count: int) -> list[str]:
    return [text[number * len(text) // count : (number + 1) * len(text) // count] for number in range(count)]


def encode(document: Any) -> bytes:
    """JSON as providers write it: UTF-8 unescaped, except where UTF-8 cannot say it."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def event(document: Any) -> bytes:
    return b"data: " + encode(document) + b"\n\n"
