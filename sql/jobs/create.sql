-- Create a job with its first event, or say that the key already has one.
-- Why one statement: the key, the job and the event exist together or not at all, in one round trip; the unique key
-- decides races. A caller that lost the race to a transaction younger than this statement's snapshot gets no row: it
-- then asks find_by_key.sql, which sees the winner. The existing job is returned with a logged commit
-- (pg_logical_emit_message), because a reply that only reads would not wait for the synchronous standby.
-- Locks: the new row; waits for another transaction that is inserting the same key.
-- Zero rows: an unknown tenant, or the race above.
WITH created AS (
    INSERT INTO ai_jobs (
        id, tenant_id, idempotency_key, request_hash, kind, provider, model, queue, priority, status, payload, metadata,
        user_id, trace_id, webhook_url, run_at, order_at, expires_at, max_attempts, on_unknown, max_unknown_retries)
    SELECT
        %(id)s::uuid, t.id, %(idempotency_key)s::text, %(request_hash)s::bytea, %(kind)s::text, %(provider)s::text,
        %(model)s::text, %(queue)s::text, %(priority)s::smallint, 'queued', %(payload)s::jsonb, %(metadata)s::jsonb,
        %(user_id)s::text, %(trace_id)s::text, %(webhook_url)s::text,
        coalesce(%(run_at)s::timestamptz, now()),
        CASE WHEN coalesce(%(run_at)s::timestamptz, now()) <= now()
             THEN now() - %(priority)s::smallint * interval '1 minute' END,
        %(expires_at)s::timestamptz, %(max_attempts)s::smallint, %(on_unknown)s::text, %(max_unknown_retries)s::smallint
    FROM ai_tenants t
    WHERE t.id = %(tenant_id)s::uuid
    ON CONFLICT (tenant_id, idempotency_key) DO NOTHING
    RETURNING *
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type) SELECT id, 1, tenant_id, 'job.queued' FROM created
), existing AS (
    SELECT * FROM ai_jobs
    WHERE tenant_id = %(tenant_id)s::uuid AND idempotency_key = %(idempotency_key)s::text
), logged AS (
    SELECT pg_logical_emit_message(true, 'aijobs', '') FROM existing
)
SELECT true AS created, c.request_hash, c.id, c.tenant_id, c.status, c.version, c.kind, c.queue, c.priority, c.attempts,
       c.max_attempts, c.cancel_requested_at, c.result, c.error, c.progress, c.metadata, c.user_id, c.trace_id,
       c.created_at, c.run_at, c.started_at, c.finished_at, c.reserved_micros, c.charged_micros
FROM created c
UNION ALL
SELECT false, e.request_hash, e.id, e.tenant_id, e.status, e.version, e.kind, e.queue, e.priority, e.attempts,
       e.max_attempts, e.cancel_requested_at, e.result, e.error, e.progress, e.metadata, e.user_id, e.trace_id,
       e.created_at, e.run_at, e.started_at, e.finished_at, e.reserved_micros, e.charged_micros
FROM existing e, logged;
