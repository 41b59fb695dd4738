-- Begin a new stay of a failed or cancelled job: a person wants it tried again, with a fresh allowance of attempts.
-- An expires_at that has passed is dropped, for it would end the job at once.
-- It is a new reservation, on the terms of the first; one that does not fit fails the statement, as in create.sql.
-- Locks: job, the tenant's balance. Zero rows: it is in another state (the caller holds the lock and has looked).
WITH again AS (
    UPDATE ai_jobs j
    SET status = 'queued', version = version + 1, stay = stay + 1, attempts_counted = 0, unknown_retries = 0,
        unsent_deaths = 0, cancel_requested_at = NULL, finished_at = NULL, error = NULL, progress = NULL, charged_micros = 0, run_at = now(),
        order_at = now() - priority * interval '1 minute', event_seq = event_seq + 1,
        expires_at = CASE WHEN expires_at > now() THEN expires_at END
    WHERE j.id = %(job_id)s::uuid AND j.tenant_id = %(tenant_id)s::uuid AND j.status IN ('failed', 'cancelled')
    RETURNING j.id, j.tenant_id, j.status, j.version, j.kind, j.queue, j.priority, j.attempts, j.max_attempts,
          j.cancel_requested_at, j.result, j.error, j.progress, j.metadata, j.user_id, j.trace_id, j.created_at,
          j.run_at, j.started_at, j.finished_at, j.reserved_micros, j.charged_micros, j.event_seq, j.stay
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq, tenant_id, 'job.queued', jsonb_build_object('stay', stay) FROM again
), reserve AS (
    INSERT INTO ai_ledger (tenant_id, job_id, stay, entry, amount_micros)
    SELECT tenant_id, id, stay, 'reserve', reserved_micros FROM again
), balance AS (
    UPDATE ai_tenants t SET reserved_micros = t.reserved_micros + again.reserved_micros
    FROM again
    WHERE t.id = again.tenant_id AND t.budgeted
)
SELECT * FROM again;
