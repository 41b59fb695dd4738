-- Record that requests are about to leave: committed before the first byte is written to the provider.
-- Why: if the worker dies after this commit, the call may have been received and paid for, and is recorded as unknown;
-- if it dies before, nothing was sent and the job is safe to repeat. The job's row is locked, so that neither a cancel
-- nor the reaper can slip in between the check and the commit.
-- Locks: job, in the order of ids; the new call.
-- A job missing from the answer must not be sent: its token is not the owner's any more, or a cancel was asked for.
WITH intent AS MATERIALIZED (
    SELECT i.job_id, i.run_token, i.step, i.provider, i.model, i.request_hash, i.dedupe_key, i.ask_by
    FROM unnest(%(job_ids)s::uuid[], %(run_tokens)s::uuid[], %(steps)s::text[], %(providers)s::text[], %(models)s::text[],
                %(request_hashes)s::bytea[], %(dedupe_keys)s::text[], %(ask_bys)s::text[])
         AS i (job_id, run_token, step, provider, model, request_hash, dedupe_key, ask_by)
), ours AS MATERIALIZED (
    SELECT j.id, j.tenant_id, j.attempts, i.step, i.provider, i.model, i.request_hash, i.dedupe_key, i.ask_by
    FROM ai_jobs j
    JOIN intent i ON i.job_id = j.id AND i.run_token = j.run_token   -- a job that has a token is running
    WHERE j.cancel_requested_at IS NULL
    ORDER BY j.id
    FOR NO KEY UPDATE OF j
)
INSERT INTO ai_calls (job_id, attempt, step, tenant_id, provider, model, stage, request_hash, dedupe_key, ask_by, sent_at)
SELECT id, attempts, step, tenant_id, provider, model, 'sent', request_hash, dedupe_key, ask_by, now() FROM ours
ON CONFLICT (job_id, attempt, step) DO UPDATE SET step = excluded.step
    WHERE ai_calls.stage = 'sent' AND ai_calls.request_hash = excluded.request_hash
RETURNING job_id;
