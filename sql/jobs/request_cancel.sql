-- Ask for the cancel of a running job. From here on it can only end as cancelled: accept.sql and its sisters look at
-- the mark under the row's lock, and the reaper does for a worker that died.
-- Locks: job, attempt. Zero rows: not running, or asked for already (the caller holds the lock and has looked).
WITH asked AS (
    UPDATE ai_jobs j
    SET cancel_requested_at = now(), version = version + 1
    WHERE j.id = %(job_id)s::uuid AND j.tenant_id = %(tenant_id)s::uuid
      AND j.status = 'running' AND j.cancel_requested_at IS NULL
    RETURNING j.id, j.tenant_id, j.status, j.version, j.kind, j.queue, j.priority, j.attempts, j.max_attempts,
          j.cancel_requested_at, j.result, j.error, j.progress, j.metadata, j.user_id, j.trace_id, j.created_at,
          j.run_at, j.started_at, j.finished_at, j.reserved_micros, j.charged_micros
), attempt AS (
    UPDATE ai_attempts a SET event_seq = a.event_seq + 1
    FROM asked
    WHERE a.job_id = asked.id AND a.number = asked.attempts
    RETURNING a.job_id, a.event_seq, a.tenant_id
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type)
    SELECT job_id, event_seq, tenant_id, 'job.cancel_requested' FROM attempt
)
SELECT * FROM asked;
