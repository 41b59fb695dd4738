-- Lock a running job that is about to be settled by its owner or by the reaper.
-- `left_open`: a call of an earlier attempt may still be asked about, and this attempt has not done so.
-- Locks: job. Zero rows: the fence says no; claims/verdict.sql says why.
SELECT id, on_unknown,
       EXISTS (SELECT FROM ai_calls_left_open o WHERE o.job_id = ai_jobs.id AND o.attempt < ai_jobs.attempts) AS left_open
FROM ai_jobs
WHERE id = %(job_id)s::uuid AND run_token = %(run_token)s::uuid AND cancel_requested_at IS NULL
FOR NO KEY UPDATE;
