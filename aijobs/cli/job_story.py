"""One job told to a person: what happened in which attempt, and what may have been paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from aijobs.domain.jobs import Job, JobStatus


def story(job: Job, attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of it."""
    yield f"job {job.id}  {job.status}  kind {job.kind}  created {job.created_at}  finished {job.finished_at or '-'}"
    if job.error is not None:
        yield f"error {job.error['code']} ({job.error['class']}): {job.error['message']}"
    for attempt in attempts:
        yield from attempt_lines(attempt)
    yield _sum(attempts)
    if job.status is JobStatus.HELD:
        yield f"It waits for a person: aijobs jobs resolve {job.id} retry|fail|cancel|accept --tenant {job.tenant_id}"


def attempt_lines(attempt: Mapping[str, Any]) -> Iterator[str]:
    """An attempt and its calls. The API tells less of them than the database knows."""
    error = attempt["error"]
    why = "" if error is None else f" ({error['code']})"
    uncounted = "" if attempt.get("counted") is not False else ", not counted"
    took = _between(attempt["started_at"], attempt["finished_at"])
    yield (
        f"  attempt {attempt['number']}: {attempt['outcome'] or 'running'}{why}{uncounted}"
        f"  {attempt['started_at']}{took}  by {attempt['worker']}"
    )
    for call in attempt["calls"]:
        yield from _call(call)


def _call(call: Mapping[str, Any]) -> Iterator[str]:
    model = "" if call["model"] is None else f" {call['model']}"
    outcome = call["outcome"] or call["stage"]
    late = " late" if call.get("late") else ""
    error = call.get("error")
    why = "" if error is None else f" ({error['code']})"
    yield f"    {call['step']} -> {call['provider']}{model}: {outcome}{late}{why}, {paid(call)}"
    first = _between(call["sent_at"], call["first_byte_at"], "first byte after ")
    facts = [f"sent {call['sent_at']}{first}{_between(call['sent_at'], call['finished_at'], 'ended after ')}"]
    if call["http_status"] is not None:
        facts.append(f"HTTP {call['http_status']}")
    if call["provider_request_id"] is not None:
        facts.append(f"request {call['provider_request_id']}")
    if call.get("provider_operation_id") is not None:
        facts.append(f"operation {call['provider_operation_id']}")
    facts.append(_tokens(call["usage"]))
    if call.get("asked_at") is not None:
        facts.append("the provider was asked and could not say")
    if call["provider_cancel"] != "not_sent":
        facts.append(f"provider's cancel: {call['provider_cancel']}")
    if call.get("accepted"):
        facts.append("its answer is in the result")
    if call.get("rejected"):
        facts.append("the handler refused its answer")
    yield f"      {', '.join(facts)}"


def paid(call: Mapping[str, Any]) -> str:
    """Whether the call costs anything, in words."""
    if call["cost_basis"] == "none":
        return "not paid for"
    if call["outcome"] is None:
        return "under way, may be paid for"
    return "may have been paid for" if call["outcome"] in ("unknown", "cancelled") else "paid for"


def _sum(attempts: Sequence[Mapping[str, Any]]) -> str:
    calls = [call for attempt in attempts for call in attempt["calls"]]
    told = [paid(call) for call in calls]
    surely, perhaps = told.count("paid for"), sum("may" in words for words in told)
    made = f"calls: {len(calls)} in {len(attempts)} attempt{'s' if len(attempts) != 1 else ''}"
    return f"{made}, {surely} paid for, {perhaps} that may have been"


def _tokens(usage: Mapping[str, Any] | None) -> str:
    if usage is None:
        return "tokens not reported"
    cached = f" ({usage['cached_tokens']} cached)" if usage["cached_tokens"] else ""
    reasoning = f" ({usage['reasoning_tokens']} reasoning)" if usage["reasoning_tokens"] else ""
    return f"tokens {_number(usage['input_tokens'])} in{cached}, {_number(usage['output_tokens'])} out{reasoning}"


def _number(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _between(start: str | None, end: str | None, words: str = "took ") -> str:
    if start is None or end is None:
        return ""
    seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    return f", {words}{seconds:.1f} s"
