"""Having one response of OpenAI's Responses API made, and following it until it is final."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from aijobs.domain.failures import ErrorClass, Failure
from aijobs.errors import NotSent, ProviderError
from aijobs.providers import classify, reply_json
from aijobs.providers.base import Reply, Request
from aijobs.providers.endpoint import Endpoint, error_of, failure_of_status, header_safe
from aijobs.providers.exchange import Exchange
from aijobs.providers.reply_text import TextTooLarge
from aijobs.providers.responses_events import ErrorEvent, Progress, Unreadable, failure_of
from aijobs.providers.transport import HttpReply, ReplyTooLarge, TransportFailure
from aijobs.sse import EventTooLarge, read_events

# Between two looks at a response: at first as long as a short answer takes, in the end as long as nobody minds to wait.
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0


class Broken(Exception):
    """A request brought no final response, for a reason. `for_good`: nor will another one.

    `status` is that of a complete answer with an error.
    """

    def __init__(self, failure: Failure, *, status: int | None = None, for_good: bool = False) -> None:
        super().__init__(failure.code)
        self.failure = failure
        self.status = status
        self.for_good = for_good


@dataclass(slots=True)
class Work:
    """One response, and the requests by which it is made and followed."""

    endpoint: Endpoint
    request: Request
    exchange: Exchange
    progress: Progress
    http: HttpReply | None = None

    def create(self, body: Mapping[str, Any]) -> None:
        """Have the response made, and read it to its end. Raises Broken, NotSent, ProviderError for a refusal."""
        headers = {"X-Client-Request-Id": header_safe(self.request.client_request_id)}
        try:
            with self.endpoint.send(
                "POST", "/responses", document=body, headers=headers, exchange=self.exchange
            ) as reply:
                self.http = reply
                if reply.status != 200:
                    raise self.error(failure_of_status(reply, self.endpoint.private(self.request.body)))
                self._read(reply, resumed=False)
        except TransportFailure as failure:
            raise Broken(classify.of_transport(failure, self.exchange)) from failure
        if self.progress.final is None:
            raise _unknown("reply_cut", "The reply broke off before the response was final.")

    def go_on(self) -> None:
        """Follow a response whose stream broke until it is final, whatever the network does. Raises ProviderError."""
        pause = _FIRST_PAUSE_SECONDS
        resume = self.progress.resumable
        while self.progress.final is None:
            self._wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            seen = self.progress.sequence
            try:
                self._fetch(resume=resume)
            except Broken as broken:
                failure = broken.failure
                if broken.for_good:
                    raise self.error(failure) from broken
                if not resume and (broken.status == 404 or failure.error_class is ErrorClass.GATE):
                    # The work was taken: what is refused now is only to show it, here and at this moment.
                    raise self.error(unasked(broken, ErrorClass.UNKNOWN)) from broken
                pause = max(pause, failure.retry_after_seconds or 0.0)
            if self.progress.sequence != seen:
                pause = _FIRST_PAUSE_SECONDS
            elif resume:
                # A stream that brings nothing new may never do: queued work, or a server that does not resume.
                resume = False

    def wait(self) -> None:
        """Look at the response until it is final. Raises Broken as soon as that cannot be done, or at the deadline."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self._fetch(resume=False)
            if self.progress.final is not None:
                return
            self._wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def reply(self) -> Reply:
        """What the final response means. Raises ProviderError where that is no answer."""
        progress = self.progress
        assert progress.final is not None
        if progress.status == "failed":
            raise self.error(failure_of(progress.final, self.endpoint.private(self.request.body)))
        if progress.status == "cancelled":
            words = "The provider says that this response was cancelled."
            raise self.error(Failure(ErrorClass.TRANSIENT, "provider_cancelled", words))
        try:
            text = progress.whole_text()
        except Unreadable as error:
            raise self.error(Failure(ErrorClass.UNKNOWN, error.code, error.words)) from error
        except TextTooLarge as error:
            raise self.error(_too_large(error).failure) from error
        reason = progress.finish_reason()
        if reason == "content_filter" and not text:
            failure = Failure(ErrorClass.PERMANENT, "content_filtered", "The provider's filter refuses this content.")
            raise self.error(failure)
        return Reply(
            text=text,
            finish_reason=reason,
            model=progress.model,
            usage=progress.usage,
            http_status=200,
            provider_request_id=self._request_id(),
            provider_operation_id=progress.operation_id,
        )

    def error(self, failure: Failure) -> ProviderError:
        return error_of(
            failure,
            self.exchange,
            self.http,
            request_id=self._request_id(),
            operation_id=self.progress.operation_id,
            usage=self.progress.usage,
            output_characters=self.progress.characters,
        )

    def _wait(self, seconds: float) -> None:
        """Pause. Raises ProviderError when the call is ended."""
        self.exchange.pause(seconds)
        if self.exchange.reason is not None:
            raise self.error(_ended(self.exchange.reason))

    def _fetch(self, *, resume: bool) -> None:
        """Ask once after the response. Raises Broken."""
        # The first request of a call goes by the exchange itself, which then says how far the call got.
        exchange = self.exchange if self.exchange.phase == "new" else self.exchange.follow_up()
        assert self.progress.operation_id is not None
        path = path_of(self.progress.operation_id)
        if resume:
            path += f"?stream=true&starting_after={self.progress.sequence}"
        try:
            with self.endpoint.send("GET", path, exchange=exchange) as reply:
                self.http = self.http or reply
                if reply.status != 200:
                    failure = failure_of_status(reply, self.endpoint.private(self.request.body))
                    raise Broken(failure, status=reply.status)
                self._read(reply, resumed=resume)
        except NotSent as stopped:
            raise Broken(_ended(stopped.reason)) from stopped
        except TransportFailure as failure:
            raise Broken(classify.of_transport(failure, exchange)) from failure

    def _read(self, reply: HttpReply, *, resumed: bool) -> None:
        """Take what comes, up to a final response or the reply's end. Raises Broken, TransportFailure."""
        streamed = "event-stream" in reply.headers.get("Content-Type", "").lower()
        try:
            if not streamed:
                self.progress.take_object(reply.body().decode("utf-8-sig", "replace"))
                return
            for event in read_events(reply.pieces()):
                if event.data.strip() not in ("", "[DONE]"):
                    self.progress.take_event(event, resumed=resumed)
                if self.progress.final is not None:
                    return
        except (ReplyTooLarge, EventTooLarge) as error:
            # A stream is far larger than what it tells: the object may still be small enough.
            raise _too_large(error, for_good=not streamed) from error
        except TextTooLarge as error:
            raise _too_large(error) from error
        except Unreadable as error:
            raise _unknown(error.code, error.words) from error
        except ErrorEvent as error:
            private = self.endpoint.private(self.request.body)
            had_output = self.progress.had_output
            raise Broken(classify.of_error_in_reply(error.body, had_output=had_output, private=private)) from error

    def _request_id(self) -> str | None:
        return None if self.http is None else reply_json.identifier(self.http.headers.get("x-request-id"))


def path_of(operation_id: str) -> str:
    return f"/responses/{quote(operation_id, safe='')}"


def unasked(broken: Broken, error_class: ErrorClass | None = None) -> Failure:
    """Why the provider could not be asked now: never proof of anything about the work, except that it is not final."""
    failure = broken.failure
    keeps_class = error_class is None and failure.error_class is ErrorClass.GATE
    return replace(
        failure,
        error_class=failure.error_class if keeps_class else ErrorClass.UNKNOWN,
        refused=failure.refused and keeps_class,
        askable=not broken.for_good,
    )


def _ended(reason: str) -> Failure:
    words = "The call was ended while the provider worked on it."
    return Failure(ErrorClass.UNKNOWN, f"aborted_{reason}", words, askable=True)


def _unknown(code: str, words: str) -> Broken:
    return Broken(Failure(ErrorClass.UNKNOWN, code, words))


def _too_large(error: Exception, *, for_good: bool = True) -> Broken:
    return Broken(
        Failure(ErrorClass.UNKNOWN, "reply_too_large", f"The reply is too large: {error}."), for_good=for_good
    )
