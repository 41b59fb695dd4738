-- Accept results: the one statement by which a job succeeds.
-- Why the condition is token and status and not the lease: an expired lease that nobody has taken over still holds a
-- paid result, and throwing it away would buy it again. Why cancel is looked at here, under the row's lock: a cancel
-- that was answered 202 must win even against a result that arrives a millisecond later.
-- Many jobs at once, because a commit costs more than a job; locked in the order of their ids, so that two batches
-- cannot deadlock.
-- `used` names the answers of earlier attempts that went into a result. An attempt beyond the allowance, made only to use
-- such an answer, is not counted.
-- What its tenant is charged is decided here as well: the fixed price, or what the accepted calls cost and the margin,
-- never more than was reserved; the rest is released.
-- Locks: job, attempt, call, the balances of budgeted tenants in the order of their ids.
-- A job missing from the answer was not accepted: claims/verdict.sql says why.
WITH settlement AS MATERIALIZED (
    SELECT s.job_id, s.run_token, s.result
    FROM unnest(%(job_ids)s::uuid[], %(run_tokens)s::uuid[], %(results)s::jsonb[]) AS s (job_id, run_token, result)
), ours AS MATERIALIZED (
    SELECT j.id, j.attempts, s.result, j.attempts_counted < j.max_attempts AS counted
    FROM ai_jobs j
    JOIN settlement s ON s.job_id = j.id AND s.run_token = j.run_token   -- a job that has a token is running
    WHERE j.cancel_requested_at IS NULL
    ORDER BY j.id
    FOR NO KEY UPDATE OF j
), attempt AS (
    UPDATE ai_attempts a
    SET finished_at = now(), outcome = 'succeeded', counted = ours.counted, accepted = true, event_seq = a.event_seq + 2
    FROM ours
    WHERE a.job_id = ours.id AND a.number = ours.attempts
    RETURNING a.job_id, a.event_seq, a.counted, ours.result
), call AS (
    UPDATE ai_calls c
    SET accepted = true
    FROM ours
    WHERE c.job_id = ours.id AND c.outcome = 'succeeded' AND NOT c.rejected
      AND (c.attempt = ours.attempts OR (c.job_id, c.attempt, c.step) IN (
          SELECT u.job_id, u.attempt, u.step
          FROM jsonb_to_recordset(%(used)s::jsonb) AS u (job_id uuid, attempt integer, step text)))
    RETURNING c.job_id, c.cost_micros
), cost AS (
    SELECT job_id, sum(cost_micros) AS micros FROM call GROUP BY job_id
), accepted AS (
    UPDATE ai_jobs j
    SET status = 'succeeded', version = j.version + 1, attempts_counted = j.attempts_counted + attempt.counted::integer,
        result = attempt.result, error = NULL, finished_at = now(), event_seq = attempt.event_seq,
        charged_micros = least(j.reserved_micros, CASE j.tariff
            WHEN 'fixed' THEN j.price_micros
            WHEN 'metered' THEN ceil(coalesce(cost.micros, 0) * (100 + j.margin_percent) / 100.0)::bigint
            ELSE 0 END),
        run_token = NULL, worker_id = NULL, lease_until = NULL
    FROM attempt
    LEFT JOIN cost ON cost.job_id = attempt.job_id
    WHERE j.id = attempt.job_id
    RETURNING j.id, j.tenant_id, j.stay, j.attempts, j.event_seq, j.created_at, j.started_at, j.reserved_micros,
              j.charged_micros, j.webhook_url
), webhook AS (
    INSERT INTO ai_webhook_deliveries (tenant_id, job_id, stay, type, url, status, ended_at)
    SELECT a.tenant_id, a.id, a.stay, 'job.succeeded', a.webhook_url,
           CASE WHEN d.url IS NULL THEN 'pending' ELSE 'disabled' END, CASE WHEN d.url IS NOT NULL THEN now() END
    FROM accepted a
    LEFT JOIN ai_webhook_disabled d ON d.tenant_id = a.tenant_id AND d.url = a.webhook_url
    WHERE a.webhook_url IS NOT NULL
), closed AS (
    INSERT INTO ai_ledger (tenant_id, job_id, stay, entry, amount_micros)
    SELECT tenant_id, id, stay, 'charge', charged_micros FROM accepted
    UNION ALL
    SELECT tenant_id, id, stay, 'release', reserved_micros - charged_micros FROM accepted
    WHERE reserved_micros > charged_micros
), settled AS MATERIALIZED (
    SELECT tenant_id, sum(reserved_micros)::bigint AS reserved, sum(charged_micros)::bigint AS charged
    FROM accepted WHERE reserved_micros > 0 GROUP BY tenant_id
), locked AS MATERIALIZED (
    SELECT t.id, settled.reserved, settled.charged
    FROM ai_tenants t JOIN settled ON settled.tenant_id = t.id
    WHERE t.budgeted
    ORDER BY t.id
    FOR NO KEY UPDATE OF t
), balance AS (
    UPDATE ai_tenants t
    SET reserved_micros = t.reserved_micros - locked.reserved, charged_micros = t.charged_micros + locked.charged
    FROM locked
    WHERE t.id = locked.id
), events AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq - 1, tenant_id, 'job.attempt_ended',
           jsonb_build_object('attempt', attempts, 'outcome', 'succeeded')
    FROM accepted
    UNION ALL
    SELECT id, event_seq, tenant_id, 'job.succeeded', '{}' FROM accepted
)
SELECT id, attempts,
       extract(epoch FROM now() - created_at)::float8 AS age_seconds,
       extract(epoch FROM now() - started_at)::float8 AS run_seconds
FROM accepted;
