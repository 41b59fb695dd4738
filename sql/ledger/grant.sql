-- Grant a tenant money, which gives it a budget if it had none. What it was charged before it had one is granted on top,
-- by an adjustment, so that the balance is the sum of all entries.
-- Why the first grant waits until no job is open: a job that was created without a budget has no place in the balance.
-- Locks: the tenant. Zero rows: no such tenant, or it has open jobs and no budget yet.
WITH before AS MATERIALIZED (
    SELECT t.id, t.budgeted, CASE WHEN t.budgeted THEN 0 ELSE (
               SELECT coalesce(sum(l.amount_micros), 0) FROM ai_ledger l
               WHERE l.tenant_id = t.id AND l.entry = 'charge') END AS charged_micros
    FROM ai_tenants t
    WHERE t.id = %(tenant_id)s::uuid
      AND (t.budgeted OR NOT EXISTS (SELECT FROM ai_jobs j WHERE j.tenant_id = t.id AND j.finished_at IS NULL))
    FOR NO KEY UPDATE OF t
), granted AS (
    UPDATE ai_tenants t
    SET budgeted = true, granted_micros = t.granted_micros + %(amount_micros)s::bigint + before.charged_micros,
        charged_micros = t.charged_micros + before.charged_micros
    FROM before
    WHERE t.id = before.id
    RETURNING t.id, t.granted_micros, t.reserved_micros, t.charged_micros
), entries AS (
    INSERT INTO ai_ledger (tenant_id, entry, amount_micros, reason)
    SELECT id, 'grant', %(amount_micros)s::bigint, %(reason)s::text FROM granted
    UNION ALL
    SELECT id, 'adjust', charged_micros, 'charged before there was a budget' FROM before WHERE charged_micros > 0
)
SELECT granted_micros, reserved_micros, charged_micros FROM granted;
