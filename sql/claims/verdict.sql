-- Say why a settlement touched no row: what the attempt with this token came to, and whether it still owns the job.
-- Why: a COMMIT whose reply was lost may have happened. Repeating the settlement then meets a closed attempt, and the
-- recorded outcome tells "already done by me" from "taken over by somebody else". The message forces a logged commit,
-- so that the answer "already" waits for the synchronous standby as the first commit would have.
-- Locks: none. Zero rows: no attempt of this job ever had this token.
SELECT a.outcome, a.error,
       coalesce(j.status = 'running' AND j.run_token = a.run_token, false) AS ours,
       j.cancel_requested_at IS NOT NULL AS cancel_requested,
       pg_logical_emit_message(true, 'aijobs', '')::text AS logged
FROM ai_attempts a
JOIN ai_jobs j ON j.id = a.job_id
WHERE a.job_id = %(job_id)s::uuid AND a.run_token = %(run_token)s::uuid;
