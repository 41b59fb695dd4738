-- Close the books of jobs that have just ended without an accepted result, or with one that a person accepted: charge what
-- is due, release the rest. Those that are closed already are left as they are.
-- Why it is not part of each of the statements that end a job: there are seven, and the sums must be the same in all. It
-- runs in their transaction. Only accept.sql, which runs for every job, does its own.
-- It also writes the webhook that the job's end is told by: whatever ends a job closes its books.
-- A cancelled job is charged only where its kind says so and something was delivered: the fixed price, or the cost.
-- Locks: job, the balances of budgeted tenants in the order of their ids. Zero rows: nothing was open.
WITH ended AS MATERIALIZED (
    SELECT j.id, j.tenant_id, j.stay, j.reserved_micros, j.status, j.webhook_url, least(j.reserved_micros, CASE
               WHEN j.status = 'failed' OR (j.status = 'cancelled' AND j.on_cancel = 'release') THEN 0
               WHEN j.tariff = 'fixed' AND (j.status = 'succeeded' OR used.delivered) THEN j.price_micros
               WHEN j.tariff = 'metered' THEN ceil(used.cost_micros * (100 + j.margin_percent) / 100.0)::bigint
               ELSE 0 END) AS charged_micros
    FROM ai_jobs j
    LEFT JOIN LATERAL (
        SELECT coalesce(sum(c.cost_micros), 0) AS cost_micros,
               coalesce(bool_or(c.outcome = 'succeeded' OR c.output_tokens > 0), false) AS delivered
        FROM ai_calls c
        JOIN ai_attempts a ON a.job_id = c.job_id AND a.number = c.attempt
        WHERE c.job_id = j.id AND a.stay = j.stay AND (j.status <> 'succeeded' OR c.accepted)
    ) used ON true
    WHERE j.id = ANY (%(job_ids)s::uuid[]) AND j.finished_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM ai_ledger l
                      WHERE l.job_id = j.id AND l.stay = j.stay AND l.entry IN ('charge', 'release'))
), webhook AS (
    INSERT INTO ai_webhook_deliveries (tenant_id, job_id, stay, type, url, status, ended_at)
    SELECT e.tenant_id, e.id, e.stay, 'job.' || e.status, e.webhook_url,
           CASE WHEN d.url IS NULL THEN 'pending' ELSE 'disabled' END, CASE WHEN d.url IS NOT NULL THEN now() END
    FROM ended e
    LEFT JOIN ai_webhook_disabled d ON d.tenant_id = e.tenant_id AND d.url = e.webhook_url
    WHERE e.webhook_url IS NOT NULL
), charged AS (
    UPDATE ai_jobs j SET charged_micros = ended.charged_micros
    FROM ended
    WHERE j.id = ended.id AND ended.charged_micros > 0
), entries AS (
    INSERT INTO ai_ledger (tenant_id, job_id, stay, entry, amount_micros)
    SELECT tenant_id, id, stay, 'charge', charged_micros FROM ended WHERE status = 'succeeded' OR charged_micros > 0
    UNION ALL
    SELECT tenant_id, id, stay, 'release', reserved_micros - charged_micros FROM ended
    WHERE reserved_micros > charged_micros OR (status <> 'succeeded' AND charged_micros = 0)
), sums AS MATERIALIZED (
    SELECT tenant_id, sum(reserved_micros)::bigint AS reserved, sum(charged_micros)::bigint AS charged
    FROM ended WHERE reserved_micros > 0 GROUP BY tenant_id
), locked AS MATERIALIZED (
    SELECT t.id, sums.reserved, sums.charged
    FROM ai_tenants t JOIN sums ON sums.tenant_id = t.id
    WHERE t.budgeted
    ORDER BY t.id
    FOR NO KEY UPDATE OF t
), balance AS (
    UPDATE ai_tenants t
    SET reserved_micros = t.reserved_micros - locked.reserved, charged_micros = t.charged_micros + locked.charged
    FROM locked
    WHERE t.id = locked.id
)
SELECT id FROM ended;
