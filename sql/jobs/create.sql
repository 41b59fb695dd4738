-- Create a job with its first event and its reservation, unless its key has one already.
-- Why one statement: the key, the job, the reservation and the event exist together or not at all, in one round trip; the
-- unique key decides races.
-- Why the budget is a CHECK on the tenant's row: it is decided in the same statement as the insert, after the key has been
-- decided, and takes back all of it when the reservation does not fit. Only a tenant with a budget has its row locked.
-- `reserve_micros` NULL means that the reservation follows from the price in force and the size of the request.
-- Locks: the new row, then the tenant's balance; waits for another transaction that is inserting the same key.
-- Zero rows: the key has a job (find_by_key.sql tells which), an unknown tenant, or a budgeted one and no known price.
WITH price AS MATERIALIZED (
    SELECT p.* FROM ai_prices p
    WHERE %(reserve_micros)s::bigint IS NULL AND p.provider = %(provider)s::text AND p.model = %(model)s::text
      AND p.valid_from <= now() AND (p.valid_until IS NULL OR p.valid_until > now())
    ORDER BY p.valid_from DESC LIMIT 1
), terms AS MATERIALIZED (
    SELECT coalesce(%(reserve_micros)s::bigint, (
        SELECT ceil((price.request_micros
                     + (%(input_tokens)s::bigint * greatest(price.input_micros, price.cache_write_micros)
                        + coalesce(%(output_tokens)s::bigint, price.max_output_tokens, 4096)
                          * greatest(price.output_micros, price.reasoning_micros)) / 1000000.0)
                    * (100 + %(margin_percent)s::integer) / 100.0)::bigint
        FROM price)) AS reserve_micros
), created AS (
    INSERT INTO ai_jobs (
        id, tenant_id, idempotency_key, request_hash, kind, provider, model, queue, priority, status, payload, metadata,
        user_id, trace_id, webhook_url, run_at, order_at, expires_at, max_attempts, on_unknown, max_unknown_retries,
        reserved_micros, tariff, price_micros, margin_percent, on_cancel)
    SELECT
        %(id)s::uuid, t.id, %(idempotency_key)s::text, %(request_hash)s::bytea, %(kind)s::text, %(provider)s::text,
        %(model)s::text, %(queue)s::text, %(priority)s::smallint, 'queued', %(payload)s::jsonb, %(metadata)s::jsonb,
        %(user_id)s::text, %(trace_id)s::text, %(webhook_url)s::text,
        coalesce(%(run_at)s::timestamptz, now()),
        CASE WHEN coalesce(%(run_at)s::timestamptz, now()) <= now()
             THEN now() - %(priority)s::smallint * interval '1 minute' END,
        %(expires_at)s::timestamptz, %(max_attempts)s::smallint, %(on_unknown)s::text, %(max_unknown_retries)s::smallint,
        coalesce(terms.reserve_micros, 0), %(tariff)s::text, %(price_micros)s::bigint, %(margin_percent)s::integer,
        %(on_cancel)s::text
    FROM ai_tenants t, terms
    WHERE t.id = %(tenant_id)s::uuid
      AND NOT (t.budgeted AND (%(tariff)s::text = 'none' OR terms.reserve_micros IS NULL))
    ON CONFLICT (tenant_id, idempotency_key) DO NOTHING
    RETURNING *
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type) SELECT id, 1, tenant_id, 'job.queued' FROM created
), reserve AS (
    INSERT INTO ai_ledger (tenant_id, job_id, stay, entry, amount_micros)
    SELECT tenant_id, id, stay, 'reserve', reserved_micros FROM created
), balance AS (
    UPDATE ai_tenants t SET reserved_micros = t.reserved_micros + created.reserved_micros
    FROM created
    WHERE t.id = created.tenant_id AND t.budgeted
)
SELECT c.id, c.tenant_id, c.status, c.version, c.kind, c.queue, c.priority, c.attempts, c.max_attempts,
       c.cancel_requested_at, c.result, c.error, c.progress, c.metadata, c.user_id, c.trace_id, c.created_at, c.run_at,
       c.started_at, c.finished_at, c.reserved_micros, c.charged_micros
FROM created c;
