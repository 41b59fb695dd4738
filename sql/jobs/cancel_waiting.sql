-- Cancel a job that no worker holds: queued, in backoff, or held.
-- Locks: job. Zero rows: the job is in another state (the caller holds its lock and has looked).
WITH cancelled AS (
    UPDATE ai_jobs j
    SET status = 'cancelled', version = version + 1, cancel_requested_at = now(), finished_at = now(), order_at = NULL,
        error = NULL, event_seq = event_seq + 2
    WHERE j.id = %(job_id)s::uuid AND j.tenant_id = %(tenant_id)s::uuid AND j.status IN ('queued', 'held')
    RETURNING j.id, j.tenant_id, j.status, j.version, j.kind, j.queue, j.priority, j.attempts, j.max_attempts,
          j.cancel_requested_at, j.result, j.error, j.progress, j.metadata, j.user_id, j.trace_id, j.created_at,
          j.run_at, j.started_at, j.finished_at, j.reserved_micros, j.charged_micros, j.event_seq
), events AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type)
    SELECT id, event_seq - 1, tenant_id, 'job.cancel_requested' FROM cancelled
    UNION ALL
    SELECT id, event_seq, tenant_id, 'job.cancelled' FROM cancelled
)
SELECT * FROM cancelled;
