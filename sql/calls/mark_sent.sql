-- Record that requests are about to leave: committed before the first byte is written to the provider.
-- Why: if the worker dies after this commit, the call may have been received and paid for, and is recorded as unknown;
-- if it dies before, nothing was sent and the job is safe to repeat. The job's row is locked, so that neither a cancel
-- nor the reaper can slip in between the check and the commit.
-- The price in force is noted now, and what the call may cost at most: with it an unknown call is not an unknown risk.
-- Locks: job, in the order of ids; the new call.
-- A job missing from the answer must not be sent: its token is not the owner's any more, or a cancel was asked for.
WITH intent AS MATERIALIZED (
    SELECT i.*
    FROM unnest(%(job_ids)s::uuid[], %(run_tokens)s::uuid[], %(steps)s::text[], %(providers)s::text[], %(models)s::text[],
                %(request_hashes)s::bytea[], %(dedupe_keys)s::text[], %(ask_bys)s::text[],
                %(inputs)s::bigint[], %(outputs)s::bigint[])
         AS i (job_id, run_token, step, provider, model, request_hash, dedupe_key, ask_by, input_tokens, output_tokens)
), ours AS MATERIALIZED (
    SELECT j.id, j.tenant_id, j.attempts, i.step, i.provider, i.model, i.request_hash, i.dedupe_key, i.ask_by,
           i.input_tokens, i.output_tokens
    FROM ai_jobs j
    JOIN intent i ON i.job_id = j.id AND i.run_token = j.run_token   -- a job that has a token is running
    WHERE j.cancel_requested_at IS NULL
    ORDER BY j.id
    FOR NO KEY UPDATE OF j
), sent AS (
    INSERT INTO ai_calls (
        job_id, attempt, step, tenant_id, provider, model, stage, request_hash, dedupe_key, ask_by, sent_at, price_id,
        cost_ceiling_micros)
    SELECT ours.id, ours.attempts, ours.step, ours.tenant_id, ours.provider, ours.model, 'sent', ours.request_hash,
           ours.dedupe_key, ours.ask_by, now(), price.id,
           price.request_micros + ceil((
               ours.input_tokens * greatest(price.input_micros, price.cache_write_micros)
               + coalesce(ours.output_tokens, price.max_output_tokens) * greatest(price.output_micros, price.reasoning_micros)
           ) / 1000000.0)::bigint
    FROM ours
    LEFT JOIN LATERAL (
        SELECT p.* FROM ai_prices p
        WHERE p.provider = ours.provider AND p.model = ours.model
          AND p.valid_from <= now() AND (p.valid_until IS NULL OR p.valid_until > now())
        ORDER BY p.valid_from DESC LIMIT 1
    ) price ON true
    ON CONFLICT (job_id, attempt, step) DO UPDATE SET step = excluded.step
        WHERE ai_calls.stage = 'sent' AND ai_calls.request_hash = excluded.request_hash
    RETURNING job_id, price_id
)
SELECT sent.job_id, sent.price_id, p.input_micros, p.cached_micros, p.cache_write_micros, p.output_micros,
       p.reasoning_micros, p.request_micros
FROM sent
LEFT JOIN ai_prices p ON p.id = sent.price_id;
