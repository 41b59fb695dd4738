-- Read the secrets that sign for a tenant, the current one first.
-- Locks: none. Zero rows: it has none yet.
SELECT secret, created_at, expires_at FROM ai_webhook_secrets
WHERE tenant_id = %(tenant_id)s::uuid AND (expires_at IS NULL OR expires_at > now())
ORDER BY expires_at IS NULL DESC, created_at DESC;
