-- Mark answers that a handler has refused: no later attempt may use them, so that the step is paid for again on purpose.
-- Locks: call. Zero rows: there is no such answer.
UPDATE ai_calls
SET rejected = true
WHERE job_id = %(job_id)s::uuid AND step = %(step)s::text AND outcome = 'succeeded' AND NOT rejected
  AND EXISTS (SELECT FROM ai_jobs j WHERE j.id = %(job_id)s::uuid AND j.run_token = %(run_token)s::uuid)
RETURNING attempt;
