// How long this job was out of sight. Kept in the browser, because the job does not know who watches it.

const KEPT_AS = "aijobs.demo.seen.";
// A tab that is killed cannot say when: until then it has said so every second.
const BEAT_MS = 1000;

/** Note that the job is in sight until the function that is returned is called. `read` gives the last event seen. */
export function watch(jobId, read) {
  const note = () => localStorage.setItem(KEPT_AS + jobId, JSON.stringify({ at: Date.now(), seq: read() }));
  const timer = setInterval(note, BEAT_MS);
  note();
  return () => {
    clearInterval(timer);
    note();
  };
}

/** When the job was last in sight: {at, seq}, or null. */
export function lastSeen(jobId) {
  return JSON.parse(localStorage.getItem(KEPT_AS + jobId) ?? "null");
}

/** The job has ended and its end was seen. */
export function forget(jobId) {
  localStorage.removeItem(KEPT_AS + jobId);
}

/** A duration as a person says it. */
export function spoken(ms) {
  if (ms < 1000) return `${ms} ms`;
  const seconds = ms / 1000;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
