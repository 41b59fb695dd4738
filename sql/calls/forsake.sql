-- Record that an attempt asks for something else than the calls that its predecessors left open: nobody will ask what
-- became of those. Policy then speaks.
-- Locks: call. Zero rows: their outcomes are known by now, or the attempt is not the job's any more.
UPDATE ai_calls c
SET asked_at = now()
FROM ai_jobs j, ai_calls_left_open o
WHERE j.id = %(job_id)s::uuid AND j.run_token = %(run_token)s::uuid
  AND o.job_id = j.id AND o.attempt < j.attempts
  AND c.job_id = o.job_id AND c.attempt = o.attempt AND c.step = o.step
RETURNING c.job_id;
