// The page: what a person does becomes a request, and what the job says becomes visible. The address bar names the job.

import { forget, lastSeen, spoken, watch } from "/demo/absence.js";
import { follow } from "/demo/job_stream.js";
import { pause, request, waitMs } from "/demo/requests.js";
import { isPending, keep, send } from "/demo/submission.js";

const JOBS = "/api/ai/jobs";
const CURRENT = "aijobs.demo.job";
const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const RECENT = 8;
const EXCERPT = 200;
const RELOADED = "was reloaded and away";
const SHORTEST_ABSENCE_MS = 1500;
const TOGETHER_MS = 50;

// In the simulator's language; see aijobs/simulator/README.md. A marker of its own makes each job's break the first.
const PACES = {
  plain: () => "",
  slow: () => " [[sim: tokens=80 delta_ms=250]]",
  cut: () => ` [[sim: tokens=80 delta_ms=250 times=1 cut_after=32 marker=demo-${crypto.randomUUID()}]]`,
};

const element = (id) => document.getElementById(id);
const jobIdInAddress = () => /^#job=([0-9a-f-]{36})$/.exec(location.hash)?.[1] ?? null;
const clock = (instant) => new Date(instant).toLocaleTimeString();

function announce(text) {
  element("announcer").textContent = text;
}

function made(name, className, text) {
  const node = document.createElement(name);
  node.className = className;
  node.textContent = text;
  return node;
}

// What an event means, in words. Pieces of output are gathered in one line instead.
const WORDS = {
  "job.queued": () => "In line for a worker",
  "job.started": (event) => (event.attempt ? `A worker took it: attempt ${event.attempt}` : "A worker took it"),
  "job.output.reset": () => "A new attempt: its answer starts over",
  "job.progress": () => "Progress",
  "job.attempt_ended": (event) => `The attempt ended: ${event.outcome ?? "no outcome"}`,
  "job.retry_scheduled": () => "Will be tried again",
  "job.held": () => "Held for a person: the last call may have been paid for",
  "job.cancel_requested": () => "Cancel requested",
  "call.cancel_confirmed": () => "The provider confirmed the cancel",
  "call.cancel_unsupported": () => "The provider knows no cancel: its connection was closed",
  "call.cancel_failed": () => "The provider could not be told of the cancel",
  "job.succeeded": () => "Succeeded: one result was accepted",
  "job.failed": () => "Failed",
  "job.cancelled": () => "Cancelled",
  snapshot: () => "Earlier events are no longer kept; this is how the job stood",
};

/** The job in sight: one at a time, from `show` to `leave`. */
class JobView {
  constructor(jobId, arrival) {
    this.jobId = jobId;
    this.address = `${JOBS}/${jobId}`;
    this.arrival = arrival;
    this.job = null;
    this.last = 0;
    this.whole = false; // the answer in sight is the job's result: pieces add nothing to it
    this.caughtUp = false;
    this.pieces = null;
    this.missed = 0;
    this.stale = false;
    this.refreshing = false;
    this.leaving = new AbortController();
  }

  async show() {
    clearJob();
    element("job-none").hidden = true;
    const seen = lastSeen(this.jobId);
    if (!(await this.firstLook())) return;
    element("job-parts").hidden = false;
    if (seen !== null) this.tellAbsence(seen);
    this.resume();
  }

  /** Get the job. False if there is none, or this view was left meanwhile. */
  async firstLook() {
    for (let failures = 0; !this.leaving.signal.aborted; failures += 1) {
      try {
        await this.refresh();
        return this.job !== null && !this.leaving.signal.aborted;
      } catch (refused) {
        if (this.leaving.signal.aborted) return false;
        element("job-none").hidden = false;
        element("job-none").textContent = refused.status === 404 ? "There is no such job." : refused.message;
        if (!refused.retryable) {
          if (localStorage.getItem(CURRENT) === this.jobId) localStorage.removeItem(CURRENT);
          return false;
        }
        await pause(waitMs(failures, refused.retryAfterMs), this.leaving.signal);
      }
    }
    return false;
  }

  resume() {
    this.viewing = new AbortController();
    this.stopWatching = ENDED.has(this.job.status) ? () => {} : watch(this.jobId, () => this.last);
    follow(this.address, {
      after: this.last,
      signal: this.viewing.signal,
      onEvent: (event) => this.take(event),
      onConnection: (state) => this.tellConnection(state),
    });
  }

  /** Let go of the connection. The job does not notice. */
  suspend() {
    this.viewing?.abort();
    this.stopWatching?.();
    this.viewing = this.stopWatching = null;
  }

  leave() {
    this.suspend();
    this.leaving.abort();
  }

  /** The tab is visible again. */
  comeBack() {
    if (this.viewing !== null || this.job === null || this.caughtUp) return;
    this.arrival = { how: "was in the background", at: Date.now() };
    this.missed = 0;
    const seen = lastSeen(this.jobId);
    if (seen !== null) this.tellAbsence(seen);
    this.resume();
  }

  get ended() {
    return this.job !== null && ENDED.has(this.job.status);
  }

  tellAbsence(seen) {
    const gone = Math.max(0, this.arrival.at - seen.at);
    // Another tab that shows this job says so every second: then it was not out of sight.
    if (gone < SHORTEST_ABSENCE_MS && this.arrival.how !== RELOADED) return;
    this.absentSince = seen;
    this.absence = `This tab ${this.arrival.how} for ${spoken(gone)}; the job went on.`;
    announce(this.absence);
    this.countMissed(0);
  }

  countMissed(more) {
    this.missed += more;
    const count = this.missed === 1 ? "1 event came" : `${this.missed} events came`;
    element("absence").textContent = this.missed ? `${this.absence} ${count} meanwhile.` : this.absence;
    element("absence").hidden = false;
  }

  take(event) {
    this.last = event.seq;
    if (this.absentSince) this.placeAbsence(event);
    if (event.type === "job.output.delta") this.addText(event);
    else this.tell(event);
    element("events").textContent = String(this.last);
  }

  /** Show in the story which events nobody saw come. */
  placeAbsence(event) {
    if (event.seq <= this.absentSince.seq) return;
    if (Date.parse(event.created_at) <= this.arrival.at) {
      if (this.missed === 0) this.tellAside(`This tab ${this.arrival.how}`);
      this.countMissed(1);
    } else {
      if (this.missed > 0) this.tellAside("This tab is back");
      this.absentSince = null;
    }
  }

  tellAside(words) {
    this.pieces = null;
    element("story").append(made("li", "unseen-span", words));
  }

  addText(event) {
    if (!this.whole) element("answer").append(event.text);
    if (this.pieces === null) this.pieces = { first: event.seq, line: addToStory(event, "") };
    const count = event.seq - this.pieces.first + 1;
    const seqs = count === 1 ? event.seq : `${this.pieces.first}–${event.seq}`;
    this.pieces.line.querySelector(".seq").textContent = seqs;
    const what = count === 1 ? "1 piece of the answer" : `${count} pieces of the answer`;
    this.pieces.line.querySelector(".what").textContent = what;
    this.pieces.line.querySelector("time").textContent = clock(event.created_at);
  }

  tell(event) {
    this.pieces = null;
    if (event.type === "job.output.reset" && !this.whole) element("answer").textContent = "";
    addToStory(event, (WORDS[event.type] ?? (() => event.type))(event));
    this.refreshSoon();
  }

  tellConnection(state) {
    const words = {
      connecting: "connecting",
      open: "live",
      waiting: "away, will come back",
      ended: "closed: the job has ended",
    };
    element("stream").textContent = words[state];
    this.live = state === "open";
    this.caughtUp = state === "ended";
    if (state === "waiting" || state === "ended") this.refreshSoon();
  }

  /** Get the job as it now stands: once for any number of events that come together, and until that succeeds. */
  async refreshSoon() {
    this.stale = true;
    if (this.refreshing) return; // one at a time, or an older answer could come last
    this.refreshing = true;
    let failures = 0;
    let wait = TOGETHER_MS;
    while (this.stale && !this.leaving.signal.aborted) {
      await pause(wait, this.leaving.signal);
      this.stale = false;
      try {
        await this.refresh();
        wait = TOGETHER_MS;
      } catch (refused) {
        this.stale = refused.retryable ?? false;
        wait = waitMs((failures += 1), refused.retryAfterMs);
      }
    }
    this.refreshing = false;
  }

  async refresh() {
    const { signal } = this.leaving;
    const [job, attempts] = await Promise.all([
      request("GET", this.address, { signal }),
      request("GET", `${this.address}/attempts`, { signal }),
    ]);
    if (signal.aborted) return;
    const before = this.job?.status;
    this.job = job;
    showFacts(job, attempts.data);
    if (job.status !== before) {
      if (before !== undefined) announce(`The job is ${statusWords(job)}.`);
      showRecent();
    }
    if (this.ended) this.end(job);
  }

  end(job) {
    this.stopWatching?.();
    this.stopWatching = null;
    forget(this.jobId);
    // The pieces, joined, are the result. It is shown at once where they are not just coming.
    if (typeof job.result?.text === "string" && !this.live) {
      this.whole = true;
      element("answer").textContent = job.result.text;
    }
  }
}

function statusWords(job) {
  return job.cancel_requested && !ENDED.has(job.status) ? "being cancelled" : job.status;
}

function showFacts(job, attempts) {
  const status = element("status");
  status.hidden = false;
  status.textContent = statusWords(job);
  status.className = `status ${job.status}`;
  element("answer").classList.toggle("coming", job.status === "running");
  document.title = `${statusWords(job)} – aijobs demo`;
  const cancel = element("cancel");
  cancel.hidden = ENDED.has(job.status);
  cancel.disabled = job.cancel_requested;
  element("outcome").textContent = job.error ? `${job.error.message} (${job.error.code}, ${job.error.class})` : "";
  element("attempts").textContent = attemptWords(job, attempts);
  element("cost").textContent = costWords(job, attempts);
  element("job-id").textContent = job.job_id;
  element("asked").textContent = job.metadata.prompt ?? "";
}

function attemptWords(job, attempts) {
  const outcomes = attempts.map((attempt) => attempt.outcome ?? "going on");
  return outcomes.length ? `${job.attempts} (${outcomes.join(", ")})` : String(job.attempts);
}

/** What the tenant is charged, and what the provider's calls cost as far as that is known. */
function costWords(job, attempts) {
  const calls = attempts.flatMap((attempt) => attempt.calls);
  const known = calls.filter((call) => call.cost_micros !== null);
  const unknown = calls.filter((call) => call.cost_micros === null && call.outcome !== null).length;
  const spent = known.reduce((sum, call) => sum + call.cost_micros, 0);
  const parts = [`${dollars(job.cost.charged_micros)} charged`];
  if (!ENDED.has(job.status)) parts[0] = `${dollars(job.cost.reserved_micros)} reserved`;
  const estimates = known.filter((call) => call.cost_basis === "estimated").length;
  const estimated = estimates ? ` (${estimates < known.length ? "partly " : ""}estimated)` : "";
  if (known.length) parts.push(`${dollars(spent)} to the provider${estimated}`);
  if (unknown) parts.push(`${unknown === 1 ? "1 call" : `${unknown} calls`} of unknown cost`);
  return parts.join(", ");
}

function dollars(micros) {
  return `$${(micros / 1_000_000).toFixed(micros % 10_000 ? 6 : 2)}`;
}

function addToStory(event, words) {
  const line = made("li", "", "");
  line.append(made("span", "seq", event.seq), made("span", "what", words), made("time", "", clock(event.created_at)));
  element("story").append(line);
  return line;
}

function clearJob() {
  const filled = ["asked", "answer", "outcome", "story", "events", "attempts", "cost", "stream", "job-id", "absence"];
  for (const id of filled) element(id).textContent = "";
  for (const id of ["status", "cancel", "absence", "job-parts"]) element(id).hidden = true;
  element("answer").classList.remove("coming");
}

let view = null;

/** Show the job that the address names; without one, the job that this browser showed last. */
function showAddressed(how) {
  const jobId = jobIdInAddress();
  if (jobId === null) {
    const last = localStorage.getItem(CURRENT);
    if (last !== null && view === null) history.replaceState(null, "", `#job=${last}`);
    if (jobIdInAddress() !== null) showAddressed(how);
    return;
  }
  if (view?.jobId === jobId) return;
  view?.leave();
  localStorage.setItem(CURRENT, jobId);
  view = new JobView(jobId, { how, at: Date.now() });
  view.show();
  markCurrent();
}

async function showRecent() {
  try {
    const { data } = await request("GET", `${JOBS}?metadata.page=demo&limit=${RECENT}`);
    element("recent-none").hidden = data.length > 0;
    element("recent").replaceChildren(...data.map(recentLine));
    markCurrent();
  } catch {
    // The list is a convenience; the next change of a job asks for it again.
  }
}

function recentLine(job) {
  const link = made("a", "", "");
  link.href = `#job=${job.job_id}`;
  const state = `${statusWords(job)}, ${clock(job.created_at)}`;
  link.append(made("span", "excerpt", job.metadata.prompt || job.job_id), made("span", "state", state));
  const line = made("li", "", "");
  line.append(link);
  return line;
}

function markCurrent() {
  for (const link of element("recent").querySelectorAll("a")) {
    if (link.hash === `#job=${view?.jobId}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

async function submitKept() {
  const button = element("create");
  button.disabled = true;
  try {
    const job = await send((refused) => {
      element("form-note").textContent = `${refused.message} The same request is sent again, with the same key.`;
    });
    element("form-note").textContent = "";
    location.hash = `job=${job.job_id}`;
    announce("The job is created.");
    element("job").focus(); // on a phone it is below the form
  } catch (refused) {
    element("form-note").textContent = refused.message;
  } finally {
    button.disabled = false;
  }
}

function create() {
  const prompt = element("prompt").value.trim();
  const pace = document.querySelector('input[name="pace"]:checked').value;
  if (!prompt || isPending()) return;
  const metadata = { page: "demo", prompt: prompt.slice(0, EXCERPT) };
  keep({ kind: "chat", payload: { prompt: prompt + PACES[pace]() }, metadata });
  submitKept();
}

async function cancel() {
  element("cancel").disabled = true;
  try {
    await request("POST", `${view.address}/cancel`);
  } catch (refused) {
    element("outcome").textContent = refused.message;
    element("cancel").disabled = false;
  }
  view.refreshSoon();
}

element("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  create();
});
element("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element("ask").requestSubmit();
});
element("cancel").addEventListener("click", cancel);
window.addEventListener("hashchange", () => showAddressed("showed something else"));
// A browser has six connections for a server. A tab that nobody sees holds none of them.
document.addEventListener("visibilitychange", () => (document.hidden ? view?.suspend() : view?.comeBack()));
window.addEventListener("pagehide", () => view?.suspend());
window.addEventListener("pageshow", (event) => event.persisted && view?.comeBack());

const reloaded = performance.getEntriesByType("navigation")[0]?.type === "reload";
showAddressed(reloaded ? RELOADED : "was closed");
showRecent();
if (isPending()) submitKept();
