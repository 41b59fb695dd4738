// Creating a job once, whatever happens to this tab. The key and the very body are kept from before the first byte is
// sent until the answer is here: a reload in between sends the same request again, and that makes no second job.

import { pause, request, waitMs } from "/demo/requests.js";

const KEPT_AS = "aijobs.demo.submission";

/** Keep a new request. It is sent by `send`. */
export function keep(document) {
  const submission = { key: crypto.randomUUID(), body: JSON.stringify(document) };
  sessionStorage.setItem(KEPT_AS, JSON.stringify(submission));
}

/** Whether a request is kept whose answer has not come. */
export function isPending() {
  return sessionStorage.getItem(KEPT_AS) !== null;
}

/** Send what is kept until it is answered, and return the job. Throws Refused when it never will be accepted. */
export async function send(onTrouble) {
  const { key, body } = JSON.parse(sessionStorage.getItem(KEPT_AS));
  for (let failures = 0; ; failures += 1) {
    try {
      const job = await request("POST", "/api/ai/jobs", { body, headers: { "Idempotency-Key": key } });
      sessionStorage.removeItem(KEPT_AS);
      return job;
    } catch (refused) {
      if (!refused.retryable) {
        sessionStorage.removeItem(KEPT_AS);
        throw refused;
      }
      onTrouble(refused);
      await pause(waitMs(failures, refused.retryAfterMs));
    }
  }
}
