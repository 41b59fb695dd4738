"""What OpenAI keeps of our requests under a key of ours, and finding a chat completion by it again.

Absence proves nothing: the list is filled some time after a completion has ended, and one that has not ended is not in
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from aijobs.clock import elapsed
from aijobs.domain.failures import ErrorClass, Failure
from aijobs.errors import NotSent, ProviderError
from aijobs.providers import classify, reply_json
from aijobs.providers.base import Lost, NothingFound
from aijobs.providers.endpoint import Endpoint, error_of, failure_of_status
from aijobs.providers.exchange import Exchange
from aijobs.providers.transport import HttpReply, ReplyTooLarge, TransportFailure

_KEY_NAME = "aijobs_call"
# The same key is sent again only after the provider could not say what became of the first: the list stays short.
_MOST_LISTED = 20
# OpenAI does not say how late its list may be. Seconds are what to expect; a slot should not wait much longer for an
# answer that may never have been made.
LISTED_WITHIN_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0


def kept_under(key: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What to add to a request so that its answer is kept under the key; metadata of its own stays."""
    given = body.get("metadata")
    return {"store": True, "metadata": {**(given if isinstance(given, Mapping) else {}), _KEY_NAME: key}}


def find_completion(endpoint: Endpoint, lost: Lost, exchange: Exchange) -> tuple[HttpReply, dict[str, Any]]:
    """The newest completed chat completion that is kept under the lost request's key, and the reply it came with.

    Raises NothingFound when there is none, after having waited for it; and ProviderError with an askable failure.
    """
    search = _Search(endpoint, lost, exchange)
    query = urlencode({f"metadata[{_KEY_NAME}]": lost.request.dedupe_key, "limit": _MOST_LISTED, "order": "desc"})
    path, pause, give_up_at = f"/chat/completions?{query}", _FIRST_PAUSE_SECONDS, None
    while True:
        reply, listed = search.get(path)
        found = _newest(listed, lost.request.dedupe_key)
        if found is not None and not _holds_answer(found):
            reply, found = search.get(f"/chat/completions/{_id_of(found)}")
        if found is not None and _is_ours(found, lost.request.dedupe_key):
            return reply, found
        give_up_at = give_up_at or min(elapsed() + LISTED_WITHIN_SECONDS, exchange.deadline_at)
        if elapsed() + pause >= give_up_at:
            if give_up_at >= exchange.deadline_at:  # it was not waited for long enough
                raise search.error(_ended("deadline"))
            raise NothingFound
        exchange.pause(pause)
        if exchange.reason is not None:
            raise search.error(_ended(exchange.reason))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


class _Search:
    """Questions of one search: whatever keeps one from being answered says nothing about what is searched for."""

    def __init__(self, endpoint: Endpoint, lost: Lost, exchange: Exchange) -> None:
        self._endpoint = endpoint
        self._body = lost.request.body
        self._exchange = exchange

    def get(self, path: str) -> tuple[HttpReply, dict[str, Any]]:
        """A reply of status 200, and its document. Raises an askable ProviderError; NothingFound for 404."""
        exchange = self._exchange if self._exchange.phase == "new" else self._exchange.follow_up()
        reply = None
        try:
            with self._endpoint.send("GET", path, exchange=exchange) as reply:
                if reply.status == 404:
                    raise NothingFound
                if reply.status != 200:
                    failure = failure_of_status(reply, self._endpoint.private(self._body))
                    raise self.error(failure, reply)
                document = reply_json.parse(reply.body().decode("utf-8-sig", "replace"))
        except NotSent as stopped:
            raise self.error(_ended(stopped.reason)) from stopped
        except TransportFailure as broken:
            raise self.error(classify.of_transport(broken, exchange), reply) from broken
        except ReplyTooLarge as error:
            raise self.error(_unknown("reply_too_large", f"The reply is too large: {error}."), reply) from error
        except ValueError as error:
            raise self.error(_unknown("malformed_reply", "The provider's answer is not JSON."), reply) from error
        if not isinstance(document, dict):
            raise self.error(_unknown("unexpected_reply", "The provider's answer is not a JSON object."), reply)
        return reply, document

    def error(self, failure: Failure, reply: HttpReply | None = None) -> ProviderError:
        """The failure as one of asking: unknown, or a shut gate."""
        if failure.error_class is not ErrorClass.GATE:
            failure = replace(failure, error_class=ErrorClass.UNKNOWN, refused=False)
        return error_of(replace(failure, askable=True), self._exchange, reply)


def _newest(listed: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    data = listed.get("data")
    ours = [each for each in data if isinstance(each, dict) and _is_ours(each, key)] if isinstance(data, list) else []
    return max(filter(_is_completed, ours), key=_created, default=None)


def _is_ours(completion: Mapping[str, Any], key: str) -> bool:
    """Whether it carries our key: a server that does not know the filter lists whatever it has, be it another's."""
    metadata = completion.get("metadata")
    return isinstance(metadata, dict) and metadata.get(_KEY_NAME) == key


def _is_completed(completion: Mapping[str, Any]) -> bool:
    """Whether it can be fetched, or is all there. A list may leave out the choices, and never has what goes on."""
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        return isinstance(completion.get("id"), str)
    return all(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _holds_answer(completion: Mapping[str, Any]) -> bool:
    choices = completion.get("choices")
    return (
        bool(choices) and isinstance(choices, list) and all(isinstance(each.get("message"), dict) for each in choices)
    )


def _created(completion: Mapping[str, Any]) -> int:
    created = completion.get("created")
    return created if type(created) is int else 0


def _id_of(completion: Mapping[str, Any]) -> str:
    return quote(str(completion.get("id")), safe="")


def _ended(reason: str) -> Failure:
    return _unknown(f"aborted_{reason}", "The call was ended while the provider was asked about it.")


def _unknown(code: str, words: str) -> Failure:
    return Failure(ErrorClass.UNKNOWN, code, words)
