"""A job as the client last saw it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aijobs.client.client import Client
    from aijobs.client.events import EventStream
    from aijobs.client.text import TextStream

ENDED = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment: it does not change by itself, each method that asks again gives another Job.

    `document` is the whole body of the answer. `result`, `progress` are None for a key without the scope `read`.
    `idempotency_key` and `replayed` (the key had made it before) are known of a job that `create` returned.
    """

    job_id: str
    status: str
    kind: str
    attempts: int
    document: Mapping[str, Any] = field(repr=False)
    idempotency_key: str | None = None
    replayed: bool = False
    etag: str | None = field(default=None, repr=False, compare=False)
    _client: Client | None = field(default=None, repr=False, compare=False)

    @classmethod
    def read(cls, document: Mapping[str, Any], client: Client | None, **known: Any) -> Job:
        """A job from the API's JSON. Raises KeyError if it is none."""
        return cls(
            job_id=str(document["job_id"]),
            status=str(document["status"]),
            kind=str(document["kind"]),
            attempts=int(document["attempts"]),
            document=document,
            _client=client,
            **known,
        )

    @property
    def ended(self) -> bool:
        """Whether it has ended: succeeded, failed or cancelled. `held` is no end."""
        return self.status in ENDED

    @property
    def result(self) -> Any:
        return self.document.get("result")

    @property
    def text(self) -> str | None:
        """The text of the result, where it has one, as every `chat` does."""
        text = self.result.get("text") if isinstance(self.result, Mapping) else None
        return text if isinstance(text, str) else None

    @property
    def error(self) -> Mapping[str, Any] | None:
        """`code`, `class` and `message` of what ended it, or of its last attempt."""
        error = self.document.get("error")
        return error if isinstance(error, Mapping) else None

    @property
    def progress(self) -> Any:
        return self.document.get("progress")

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.document.get("metadata") or {}

    @property
    def cost(self) -> Mapping[str, Any]:
        """`reserved_micros` and `charged_micros`, in millionths of `currency`."""
        return self.document.get("cost") or {}

    @property
    def created_at(self) -> datetime:
        return datetime.fromisoformat(self.document["created_at"])

    @property
    def finished_at(self) -> datetime | None:
        text = self.document.get("finished_at")
        return None if text is None else datetime.fromisoformat(text)

    def refresh(self) -> Job:
        return self._asking().get(self.job_id)

    def wait(
        self,
        timeout: float | None = None,
        *,
        raise_if_held: bool = False,
        on_update: Callable[[Job], None] | None = None,
    ) -> Job:
        """See Client.wait. A job that has ended is not asked about again."""
        return self._asking().wait(self, timeout, raise_if_held=raise_if_held, on_update=on_update)

    def stream(self, starting_after: int = 0, *, timeout: float | None = None) -> EventStream:
        """See Client.stream."""
        return self._asking().stream(self.job_id, starting_after, timeout=timeout)

    def text_stream(self, *, timeout: float | None = None) -> TextStream:
        """See Client.text."""
        return self._asking().text(self.job_id, timeout=timeout)

    def cancel(self) -> Job:
        return self._asking().cancel(self.job_id)

    def attempts_made(self) -> Sequence[Mapping[str, Any]]:
        """See Client.attempts."""
        return self._asking().attempts(self.job_id)

    def _asking(self) -> Client:
        if self._client is None:
            raise RuntimeError("this job was made without a client")
        return self._client


def new_key() -> str:
    """An Idempotency-Key that nobody else has."""
    return str(uuid.uuid4())
