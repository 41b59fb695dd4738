-- Lock a running job that is about to be settled by its owner or by the reaper.
-- Locks: job. Zero rows: the fence says no; claims/verdict.sql says why.
SELECT id FROM ai_jobs
WHERE id = %(job_id)s::uuid AND run_token = %(run_token)s::uuid AND cancel_requested_at IS NULL
FOR NO KEY UPDATE;
