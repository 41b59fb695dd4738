-- Correct what a tenant was granted, up or down, for a reason. What is reserved and charged stays covered: a correction
-- below it fails the statement (budget_is_kept).
-- Locks: the tenant. Zero rows: no such tenant, or it has no budget.
WITH adjusted AS (
    UPDATE ai_tenants t SET granted_micros = t.granted_micros + %(amount_micros)s::bigint
    WHERE t.id = %(tenant_id)s::uuid AND t.budgeted
    RETURNING t.id, t.granted_micros, t.reserved_micros, t.charged_micros
), entry AS (
    INSERT INTO ai_ledger (tenant_id, entry, amount_micros, reason)
    SELECT id, 'adjust', %(amount_micros)s::bigint, %(reason)s::text FROM adjusted
)
SELECT granted_micros, reserved_micros, charged_micros FROM adjusted;
