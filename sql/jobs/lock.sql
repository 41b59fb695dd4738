-- Lock one job of a tenant and read its status, so that the caller can choose the statement for that status.
-- Locks: the job, FOR UPDATE. Zero rows: no such job, or another tenant's.
SELECT status, kind, cancel_requested_at IS NOT NULL AS cancel_requested
FROM ai_jobs
WHERE id = %(job_id)s::uuid AND tenant_id = %(tenant_id)s::uuid
FOR UPDATE;
