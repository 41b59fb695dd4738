-- Let a tenant's current secret sign for a while longer, beside the one that replaces it.
-- Locks: the secret. Zero rows: it has none.
UPDATE ai_webhook_secrets
SET expires_at = now() + %(keep_seconds)s::float8 * interval '1 second'
WHERE tenant_id = %(tenant_id)s::uuid AND expires_at IS NULL
RETURNING id;
