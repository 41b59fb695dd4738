-- End a held job as succeeded, with a stored answer of one of its attempts as the result.
-- Locks: job, attempt, call. Zero rows: it is not held (the caller holds the lock and has looked).
WITH resolved AS (
    UPDATE ai_jobs j
    SET status = 'succeeded', version = version + 1, result = %(result)s::jsonb, error = NULL, finished_at = now(),
        event_seq = event_seq + 1
    WHERE j.id = %(job_id)s::uuid AND j.tenant_id = %(tenant_id)s::uuid AND j.status = 'held'
    RETURNING j.id, j.tenant_id, j.status, j.version, j.kind, j.queue, j.priority, j.attempts, j.max_attempts,
          j.cancel_requested_at, j.result, j.error, j.progress, j.metadata, j.user_id, j.trace_id, j.created_at,
          j.run_at, j.started_at, j.finished_at, j.reserved_micros, j.charged_micros, j.event_seq
), attempt AS (
    UPDATE ai_attempts a SET accepted = true
    FROM resolved
    WHERE a.job_id = resolved.id AND a.number = %(attempt)s::integer
), call AS (
    UPDATE ai_calls c SET accepted = true, offered = true
    FROM resolved
    WHERE c.job_id = resolved.id AND c.attempt = %(attempt)s::integer AND c.step = %(step)s::text
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type)
    SELECT id, event_seq, tenant_id, 'job.succeeded' FROM resolved
)
SELECT * FROM resolved;
