-- Record what a provider answered when it was told to stop the call of a job that had been cancelled before.
-- Locks: call. Zero rows: there is no such call any more.
UPDATE ai_calls
SET provider_cancel = %(provider_cancel)s::text
WHERE job_id = %(job_id)s::uuid AND attempt = %(attempt)s::integer AND step = %(step)s::text
RETURNING job_id;
