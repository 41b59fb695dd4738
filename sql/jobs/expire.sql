-- End jobs that were still waiting when their expires_at came.
-- Locks: job, in the order of ids, SKIP LOCKED. Zero rows: none has expired.
WITH due AS MATERIALIZED (
    SELECT id FROM ai_jobs
    WHERE expires_at <= now() AND status IN ('queued', 'held')
    ORDER BY id
    LIMIT 500
    FOR UPDATE SKIP LOCKED
), expired AS (
    UPDATE ai_jobs j
    SET status = 'failed', version = j.version + 1, finished_at = now(), order_at = NULL,
        event_seq = j.event_seq + 1,
        error = jsonb_build_object('code', 'deadline_exceeded', 'class', 'permanent',
                                   'message', 'The job was not finished before its expires_at.')
    FROM due
    WHERE j.id = due.id
    RETURNING j.id, j.tenant_id, j.event_seq
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq, tenant_id, 'job.failed', '{"code": "deadline_exceeded"}' FROM expired
)
SELECT id FROM expired;
