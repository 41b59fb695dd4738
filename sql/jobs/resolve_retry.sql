-- Put a held job back in line: a person says that a repeat is worth what it may cost.
-- Locks: job. Zero rows: it is not held (the caller holds the lock and has looked).
WITH resolved AS (
    UPDATE ai_jobs j
    SET status = 'queued', version = version + 1, error = NULL, run_at = now(),
        order_at = now() - priority * interval '1 minute', event_seq = event_seq + 1
    WHERE j.id = %(job_id)s::uuid AND j.tenant_id = %(tenant_id)s::uuid AND j.status = 'held'
    RETURNING j.id, j.tenant_id, j.status, j.version, j.kind, j.queue, j.priority, j.attempts, j.max_attempts,
          j.cancel_requested_at, j.result, j.error, j.progress, j.metadata, j.user_id, j.trace_id, j.created_at,
          j.run_at, j.started_at, j.finished_at, j.reserved_micros, j.charged_micros, j.event_seq
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq, tenant_id, 'job.retry_scheduled',
           jsonb_build_object('run_at', to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    FROM resolved
)
SELECT * FROM resolved;
