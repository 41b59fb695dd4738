-- Find the job that an idempotency key made, for a replay.
-- Why it writes: a replay that only reads would not wait for the synchronous standby, and could confirm a job that a
-- failover then undoes. The message forces a logged commit without touching the job or its ETag.
-- Locks: none. Zero rows: the key has made no job.
WITH found AS (
    SELECT * FROM ai_jobs WHERE tenant_id = %(tenant_id)s::uuid AND idempotency_key = %(idempotency_key)s::text
), logged AS (
    SELECT pg_logical_emit_message(true, 'aijobs', '') FROM found
)
SELECT request_hash, id, tenant_id, status, version, kind, queue, priority, attempts, max_attempts, cancel_requested_at, result, error,
       progress, metadata, user_id, trace_id, created_at, run_at, started_at, finished_at, reserved_micros, charged_micros
FROM found, logged;
