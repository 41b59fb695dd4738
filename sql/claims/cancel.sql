-- End a running job whose cancel was asked for.
-- What the provider answered when it was asked to stop stands on the calls of the attempt, and is told before the end.
-- Locks: job, attempt. Zero rows: the fence said no; claims/verdict.sql says why.
WITH ours AS MATERIALIZED (
    SELECT j.id, j.attempts, %(counted)s::boolean AND j.attempts_counted < j.max_attempts AS counted
    FROM ai_jobs j
    WHERE j.id = %(job_id)s::uuid AND j.run_token = %(run_token)s::uuid AND j.cancel_requested_at IS NOT NULL
    FOR NO KEY UPDATE
), stopped AS MATERIALIZED (
    SELECT c.job_id, c.step, c.provider_cancel, row_number() OVER (ORDER BY c.step)::integer AS nth
    FROM ours
    JOIN ai_calls c ON c.job_id = ours.id AND c.attempt = ours.attempts
    WHERE c.provider_cancel IN ('confirmed', 'unsupported', 'failed')
), attempt AS (
    UPDATE ai_attempts a
    SET finished_at = now(), outcome = %(outcome)s::text, counted = ours.counted, error = %(error)s::jsonb,
        event_seq = a.event_seq + 2 + (SELECT count(*) FROM stopped)::integer
    FROM ours
    WHERE a.job_id = ours.id AND a.number = ours.attempts
    RETURNING a.job_id, a.event_seq, a.counted
), settled AS (
    UPDATE ai_jobs j
    SET version = j.version + 1, run_token = NULL, worker_id = NULL, lease_until = NULL, event_seq = attempt.event_seq,
        attempts_counted = j.attempts_counted + attempt.counted::integer,
        status = 'cancelled', finished_at = now(), error = NULL
    FROM attempt
    WHERE j.id = attempt.job_id
    RETURNING j.id, j.tenant_id, j.attempts, j.event_seq, j.run_at, j.queue
), events AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq - 2 - (SELECT count(*) FROM stopped)::integer + stopped.nth, tenant_id,
           'call.cancel_' || stopped.provider_cancel, jsonb_build_object('step', stopped.step)
    FROM settled
    JOIN stopped ON stopped.job_id = settled.id
    UNION ALL
    SELECT id, event_seq - 1, tenant_id, 'job.attempt_ended',
           jsonb_build_object('attempt', attempts, 'outcome', %(outcome)s::text)
    FROM settled
    UNION ALL
    SELECT id, event_seq, tenant_id, 'job.cancelled', '{}'::jsonb FROM settled
)
SELECT id, queue FROM settled;
