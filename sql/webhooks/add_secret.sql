-- Give a tenant the secret that signs from now on, unless it has one.
-- Locks: none that others wait for. One row: whether the tenant exists, and whether the secret was `added`.
WITH tenant AS (
    SELECT id FROM ai_tenants WHERE id = %(tenant_id)s::uuid
), added AS (
    INSERT INTO ai_webhook_secrets (tenant_id, secret)
    SELECT id, %(secret)s::text FROM tenant
    ON CONFLICT (tenant_id) WHERE expires_at IS NULL DO NOTHING
    RETURNING id
)
SELECT EXISTS (SELECT FROM tenant) AS known, EXISTS (SELECT FROM added) AS added;
