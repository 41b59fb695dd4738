// Follows one job to its end, over as many connections as that takes. A connection is only a view of the job: when it
// breaks, the next one asks for what comes after the last event that was seen.

import { pause, request, retryAfterMs, waitMs } from "/demo/requests.js";

const TYPES = [
  "job.queued",
  "job.started",
  "job.output.delta",
  "job.output.reset",
  "job.progress",
  "job.attempt_ended",
  "job.retry_scheduled",
  "job.held",
  "job.cancel_requested",
  "call.cancel_confirmed",
  "call.cancel_unsupported",
  "call.cancel_failed",
  "job.succeeded",
  "job.failed",
  "job.cancelled",
  "snapshot",
];
// A network that has gone away without a word looks like a job that says nothing, and the comments that a stream sends
// meanwhile are not shown to a page. So it asks anew now and then.
const LONGEST_SILENCE_MS = 60_000;
const LAST = new Set(["job.succeeded", "job.failed", "job.cancelled"]);

/**
 * Call `onEvent` with each event after `after`, each once and in order, until the job has ended or the signal is given.
 * `onConnection` is told "connecting", "open", "waiting" and "ended".
 */
export async function follow(address, { after = 0, signal, onEvent, onConnection }) {
  let last = after;
  let failures = 0;
  const take = (event) => {
    if (event.seq <= last) return;
    last = event.seq;
    failures = 0;
    onEvent(event);
  };
  while (!signal.aborted) {
    onConnection("connecting");
    const query = new URLSearchParams({ starting_after: last });
    let wait = 0;
    try {
      const { token } = await request("POST", `${address}/events/token`, { signal });
      query.set("token", token);
      const stream = `${address}/events?${query}`;
      const how = await read(stream, take, onConnection, signal);
      if (how === "refused") wait = await refusal(stream, signal);
      if (how === "ended" || wait === null) {
        onConnection("ended");
        return;
      }
    } catch (refused) {
      if (signal.aborted) return;
      wait = refused.retryAfterMs ?? 0;
    }
    if (signal.aborted) return;
    onConnection("waiting");
    await pause(waitMs(failures, wait), signal);
    failures += 1;
  }
}

/** Read one connection: "ended" after the job's last event, "refused" if it never opened, else "broken". */
function read(address, take, onConnection, signal) {
  return new Promise((resolve) => {
    const source = new EventSource(address);
    let opened = false;
    const end = (how) => {
      clearTimeout(silence);
      source.close();
      signal.removeEventListener("abort", stop);
      resolve(how);
    };
    const stop = () => end("broken");
    let silence = setTimeout(stop, LONGEST_SILENCE_MS);
    const hear = (message) => {
      clearTimeout(silence);
      silence = setTimeout(stop, LONGEST_SILENCE_MS);
      const event = JSON.parse(message.data);
      take({ ...event, type: event.type ?? message.type, seq: Number(message.lastEventId || event.seq) });
      if (LAST.has(message.type) || LAST.has(event.type)) end("ended");
    };
    source.onopen = () => {
      opened = true;
      onConnection("open");
    };
    // The browser would come back by itself, but with a token that may have run out, and at its own pace.
    source.onerror = () => end(opened ? "broken" : "refused");
    source.onmessage = hear;
    for (const type of TYPES) source.addEventListener(type, hear);
    signal.addEventListener("abort", stop);
  });
}

/** An EventSource does not tell why it was refused: how long to wait, or null if nothing more will come. */
async function refusal(address, signal) {
  const asking = new AbortController();
  const stop = () => asking.abort();
  signal.addEventListener("abort", stop);
  try {
    const response = await fetch(address, { signal: asking.signal, cache: "no-store" });
    return response.status === 204 ? null : retryAfterMs(response);
  } finally {
    signal.removeEventListener("abort", stop);
    asking.abort();
  }
}
