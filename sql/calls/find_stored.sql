-- Find a result that an earlier attempt of this job has already paid for: same step, same request.
-- Locks: none. Zero rows: there is none, the step must be sent.
SELECT attempt, result, input_tokens, cached_tokens, output_tokens, reasoning_tokens
FROM ai_calls
WHERE job_id = %(job_id)s::uuid AND step = %(step)s::text AND request_hash = %(request_hash)s::bytea
  AND outcome = 'succeeded' AND result IS NOT NULL
ORDER BY attempt
LIMIT 1;
