-- Record under which id the provider works on a call: from then on it can be asked what became of it.
-- Why the condition is the attempt's token and not the job's: the id is a fact about this call, whoever owns the job.
-- Locks: call. Zero rows: the call has ended, or was never sent under this token.
UPDATE ai_calls c
SET stage = CASE WHEN c.stage = 'sent' THEN 'responding' ELSE c.stage END,
    provider_operation_id = %(operation_id)s::text
FROM ai_attempts a
WHERE a.job_id = %(job_id)s::uuid AND a.run_token = %(run_token)s::uuid
  AND c.job_id = a.job_id AND c.attempt = a.number AND c.step = %(step)s::text
  AND (c.stage IN ('sent', 'responding') OR c.outcome = 'unknown')
RETURNING c.job_id;
