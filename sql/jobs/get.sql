-- Read one job of a tenant.
-- Locks: none. Zero rows: no such job, or another tenant's, which must look the same.
SELECT id, tenant_id, status, version, kind, queue, priority, attempts, max_attempts, cancel_requested_at, result, error,
       progress, metadata, user_id, trace_id, created_at, run_at, started_at, finished_at, reserved_micros, charged_micros
FROM ai_jobs
WHERE id = %(job_id)s::uuid AND tenant_id = %(tenant_id)s::uuid;
