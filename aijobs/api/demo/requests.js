// Requests to the API. What can be tried again is told apart from what cannot.

/** An answer that says no. `retryable`: the same request may succeed later, not before `retryAfterMs`. */
export class Refused extends Error {
  constructor(status, detail, retryable, retryAfterMs) {
    super(detail);
    this.status = status;
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The JSON of an answer, or null for a 304. Throws Refused; status 0 means that no answer came. */
export async function request(method, address, { body, headers = {}, signal } = {}) {
  const sent = body === undefined ? headers : { "Content-Type": "application/json", ...headers };
  let response;
  try {
    response = await fetch(address, { method, headers: sent, body, signal, cache: "no-store" });
    if (response.status === 304 || response.status === 204) return null;
    if (response.ok) return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, "The server cannot be reached.", true, 0);
  }
  const problem = await response.json().catch(() => ({}));
  const faults = problem.errors?.map((each) => each.detail).join(" ");
  const detail = faults || problem.detail || `The answer was ${response.status}.`;
  throw new Refused(response.status, detail, problem.retryable ?? response.status >= 500, retryAfterMs(response));
}

/** What a Retry-After in seconds asks for; 0 without one. */
export function retryAfterMs(response) {
  const seconds = Number(response.headers.get("Retry-After"));
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : 0;
}

// Everybody comes back at another moment after an outage, and ever less often while it lasts.
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/** How long to wait before the next try, after so many in a row that failed. */
export function waitMs(failures, atLeastMs = 0) {
  const most = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** failures);
  return Math.max(atLeastMs, most / 2 + (Math.random() * most) / 2);
}

/** Resolves after a while, or at once when the signal is given. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    if (signal?.aborted) end();
    signal?.addEventListener("abort", end);
  });
}
