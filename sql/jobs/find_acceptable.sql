-- Find the newest stored answer of a job that no result was made from.
-- Locks: none (the caller holds the job's). Zero rows: there is none.
SELECT c.attempt, c.step, c.result, c.input_tokens, c.cached_tokens, c.output_tokens, c.reasoning_tokens, c.cache_write_tokens
FROM ai_calls c
WHERE c.job_id = %(job_id)s::uuid AND c.tenant_id = %(tenant_id)s::uuid
  AND c.outcome = 'succeeded' AND c.result IS NOT NULL AND NOT c.rejected AND NOT c.accepted
ORDER BY c.attempt DESC, c.sent_at DESC
LIMIT 1;
