"""`aijobs jobs submit`: over HTTP, as any other client."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import IO, Any, NoReturn

import click

from aijobs.cli.progress import Progress
from aijobs.client import (
    ApiError,
    Client,
    ClientError,
    Job,
    JobNotSucceeded,
    Reset,
    Unavailable,
    ValidationFailed,
    WaitTimeout,
)
from aijobs.client.jobs import new_key

NOT_IN_TIME = 3
# What a shell makes of a program that Ctrl-C ended.
INTERRUPTED = 130


@click.command()
@click.argument("kind")
@click.option("--payload", "payload_text", metavar="JSON", help="The payload, a JSON object.")
@click.option("--payload-file", type=click.File(encoding="utf-8"), help="A file that holds the payload; - is stdin.")
@click.option("-p", "--prompt", help='Short for --payload \'{"prompt": "..."}\'.')
@click.option("--key", help="The Idempotency-Key: the same one again finds the same job. Default: a random one.")
@click.option("--url", help="Where the API is. Default: AIJOBS_URL, or http://127.0.0.1:8000.")
@click.option("--api-key", help="Default: AIJOBS_API_KEY, which no list of processes shows.")
@click.option("--wait", "wait_seconds", type=click.FloatRange(min=0), help="Wait so many seconds for the end.")
@click.option("--stream", is_flag=True, help="Print the text while it is written; until the end, or as --wait says.")
@click.option("--json", "as_json", is_flag=True, help="Print the job as JSON; with --stream each event before it.")
def submit(
    kind: str,
    payload_text: str | None,
    payload_file: IO[str] | None,
    prompt: str | None,
    key: str | None,
    url: str | None,
    api_key: str | None,
    wait_seconds: float | None,
    stream: bool,
    as_json: bool,
) -> None:
    """Create a job of KIND over HTTP; with --wait or --stream, stay until it ends and print its result.

    Without either, its id is printed. A lost answer is asked for again under the same key, so that it makes one job.
    What is printed while a text streams is taken back, with a line that says so on stderr, where an attempt starts it
    over. Ctrl-C leaves the job running.

    \b
    Exit status:
      0    it succeeded; without --wait and --stream: it was created
      1    it failed or was cancelled, or the API refused it or could not be reached
      2    wrong use
      3    it has not ended in the time that --wait gives; it goes on
      130  Ctrl-C; it goes on
    """
    payload = _payload(payload_text, payload_file, prompt)
    key = new_key() if key is None else key
    try:
        client = Client(url, api_key)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    submission = _Submission(client, key, wait_seconds=wait_seconds, stream=stream, as_json=as_json)
    with client:
        sys.exit(submission.run(kind, payload))


class _Submission:
    """One run of the command."""

    def __init__(self, client: Client, key: str, *, wait_seconds: float | None, stream: bool, as_json: bool) -> None:
        self._client = client
        self._key = key
        self._wait_seconds = wait_seconds
        self._stream = stream
        self._as_json = as_json
        self._job: Job | None = None

    def run(self, kind: str, payload: Any) -> int:
        """Do it, and return the exit status."""
        try:
            self._job = self._create(kind, payload)
            return self._follow(self._job)
        except WaitTimeout as error:
            self._print_job(error.job or self._job)
            _say(f"{error}.")
            self._say_how_to_go_on()
            return NOT_IN_TIME
        except JobNotSucceeded as error:
            self._print_job(error.job)
            _say(_why(error))
            return 1
        except ClientError as error:
            _refused(error)
            if isinstance(error, Unavailable):
                self._say_how_to_go_on()
            return 1
        except KeyboardInterrupt:
            _say("\ninterrupted.")
            self._say_how_to_go_on()
            return INTERRUPTED

    def _create(self, kind: str, payload: Any) -> Job:
        try:
            job = self._client.create(kind, payload, idempotency_key=self._key)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if job.replayed:
            _say(f"this key has made job {job.job_id} before")
        return job

    def _follow(self, job: Job) -> int:
        if self._stream:
            job = self._streamed(job)
        elif self._wait_seconds is not None:
            with Progress(job.status) as progress:
                job = job.wait(self._wait_seconds, on_update=progress.saw_job)
            self._print_result(job)
        elif self._as_json:
            self._print_job(job)
        else:
            click.echo(job.job_id)
        return 0

    def _streamed(self, job: Job) -> Job:
        write = _writer()
        ends_line = True
        with Progress(job.status) as progress:

            def on_event(event: Any) -> None:
                progress.saw_event(event.type)
                if self._as_json:
                    seen = {"seq": event.seq, "type": event.type, **event.data}
                    click.echo(json.dumps(seen, ensure_ascii=False))

            text = self._client.text(job.job_id, timeout=self._wait_seconds, on_event=on_event)
            try:
                for piece in text:
                    if self._as_json:
                        continue
                    progress.hide()
                    if isinstance(piece, Reset):
                        write("\n")
                        _say("the text starts over: take back what was printed of it.")
                    else:
                        write(piece)
                        ends_line = piece.endswith("\n")
            finally:
                if not ends_line:
                    write("\n")
        assert text.job is not None, "a text that was read to its end has a job"
        if self._as_json or not text.text:
            self._print_result(text.job)
        return text.job

    def _print_result(self, job: Job) -> None:
        """The text where there is one, else the result as JSON; with --json the whole job."""
        if self._as_json:
            self._print_job(job)
        elif job.text is not None:
            _writer()(job.text if job.text.endswith("\n") else job.text + "\n")
        elif job.result is not None:
            click.echo(json.dumps(job.result, ensure_ascii=False))
        else:
            _say(f"job {job.job_id} has succeeded; this API key may not read its result.")

    def _print_job(self, job: Job | None) -> None:
        if self._as_json and job is not None:
            click.echo(json.dumps(dict(job.document), ensure_ascii=False))

    def _say_how_to_go_on(self) -> None:
        if self._job is None:
            _say(f"Whether the job was made is not known. The same command with --key {self._key} finds or makes it.")
            return
        job_id = self._job.job_id
        _say(f"Job {job_id} goes on.")
        _say(f"  wait for it:  the same command with --key {self._key}")
        _say(f"  look at it:   aijobs jobs show {job_id} --tenant TENANT")
        _say(f"  cancel it:    aijobs jobs cancel {job_id} --tenant TENANT")


def _payload(text: str | None, file: IO[str] | None, prompt: str | None) -> Any:
    if sum(given is not None for given in (text, file, prompt)) != 1:
        raise click.UsageError("give the payload once: --payload, --payload-file or -p")
    if prompt is not None:
        return {"prompt": prompt}
    try:
        payload = json.loads(text if file is None else file.read(), parse_constant=_no_number)  # type: ignore[arg-type]
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"the payload is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise click.UsageError("the payload must be a JSON object")
    return payload


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _writer() -> Callable[[str], None]:
    """What writes text of a model to stdout at once; to a terminal without the marks that would control it."""
    if not sys.stdout.isatty():
        return lambda text: click.echo(text, nl=False)
    return lambda text: click.echo("".join(mark for mark in text if mark.isprintable() or mark in "\n\t"), nl=False)


def _why(error: JobNotSucceeded) -> str:
    message = (error.error or {}).get("message")
    return f"{error}." if not message else f"{error}: {message}"


def _refused(error: ClientError) -> None:
    _say(f"aijobs: {error}")
    if isinstance(error, ValidationFailed):
        for fault in error.errors:
            _say(f"  {fault.get('pointer', '#')}: {fault.get('detail', '')}")
    elif isinstance(error, ApiError) and error.status == 401:
        _say("  give a key in AIJOBS_API_KEY; `aijobs keys create` makes one.")


def _say(text: str) -> None:
    click.echo(text, err=True)
