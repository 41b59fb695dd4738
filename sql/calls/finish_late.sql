-- Record what became of a call that had been closed as unknown: its worker was thought dead and was not, or the provider
-- was asked. What is known replaces "unknown"; a second "unknown" replaces only the reaper's guess.
-- Why it may wake the job, and may do no more: a paid answer is there, so a job in backoff runs now and a held one goes
-- back in line, where an attempt will find it. A finished job, a cancel and a running attempt are left alone.
-- Locks: job, call. Zero rows: the call is known already, or was never sent under this token.
WITH job AS MATERIALIZED (
    SELECT j.id, j.status FROM ai_jobs j WHERE j.id = %(job_id)s::uuid FOR NO KEY UPDATE
), closed AS MATERIALIZED (
    SELECT c.job_id, c.attempt, c.step
    FROM job
    JOIN ai_attempts a ON a.job_id = job.id AND a.run_token = %(run_token)s::uuid
    JOIN ai_calls c ON c.job_id = a.job_id AND c.attempt = a.number AND c.step = %(step)s::text
    WHERE c.stage <> 'finished'
       OR (c.outcome = 'unknown' AND (%(outcome)s::text <> 'unknown' OR c.error ->> 'code' = 'worker_lost'))
    FOR NO KEY UPDATE OF c
), recorded AS (
    UPDATE ai_calls c
    SET stage = 'finished', outcome = %(outcome)s::text, finished_at = now(), late = true, offered = %(offered)s::boolean,
        first_byte_at = c.sent_at + %(first_byte_seconds)s::float8 * interval '1 second',
        http_status = coalesce(%(http_status)s::smallint, c.http_status),
        provider_request_id = coalesce(%(provider_request_id)s::text, c.provider_request_id),
        provider_operation_id = coalesce(%(provider_operation_id)s::text, c.provider_operation_id),
        input_tokens = %(input_tokens)s::bigint, cached_tokens = %(cached_tokens)s::bigint,
        output_tokens = %(output_tokens)s::bigint, reasoning_tokens = %(reasoning_tokens)s::bigint,
        cache_write_tokens = %(cache_write_tokens)s::bigint, cost_micros = %(cost_micros)s::bigint,
        cost_basis = %(cost_basis)s::text, provider_cancel = CASE WHEN %(provider_cancel)s::text = 'not_sent' THEN c.provider_cancel
                               ELSE %(provider_cancel)s::text END,
        error = %(error)s::jsonb,
        result = %(result)s::jsonb
    FROM closed
    WHERE c.job_id = closed.job_id AND c.attempt = closed.attempt AND c.step = closed.step
    RETURNING c.job_id, c.result IS NOT NULL AS brought
), woken AS (
    UPDATE ai_jobs j
    SET status = 'queued', version = j.version + 1, error = NULL, run_at = now(),
        order_at = now() - j.priority * interval '1 minute', event_seq = j.event_seq + 1
    FROM recorded
    WHERE j.id = recorded.job_id AND recorded.brought AND j.cancel_requested_at IS NULL
      AND (j.status = 'held' OR (j.status = 'queued' AND j.order_at IS NULL))
    RETURNING j.id, j.tenant_id, j.event_seq, j.queue
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq, tenant_id, 'job.retry_scheduled',
           jsonb_build_object('run_at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    FROM woken
)
SELECT recorded.job_id, woken.queue FROM recorded LEFT JOIN woken ON true;
