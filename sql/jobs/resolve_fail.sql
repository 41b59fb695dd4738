-- End a held job as failed, with the error that it was held for: a person says that it is over.
-- Locks: job. Zero rows: it is not held (the caller holds the lock and has looked).
WITH resolved AS (
    UPDATE ai_jobs j
    SET status = 'failed', version = version + 1, finished_at = now(), event_seq = event_seq + 1
    WHERE j.id = %(job_id)s::uuid AND j.tenant_id = %(tenant_id)s::uuid AND j.status = 'held'
    RETURNING j.id, j.tenant_id, j.status, j.version, j.kind, j.queue, j.priority, j.attempts, j.max_attempts,
          j.cancel_requested_at, j.result, j.error, j.progress, j.metadata, j.user_id, j.trace_id, j.created_at,
          j.run_at, j.started_at, j.finished_at, j.reserved_micros, j.charged_micros, j.event_seq
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq, tenant_id, 'job.failed', jsonb_build_object('code', error ->> 'code') FROM resolved
)
SELECT * FROM resolved;
