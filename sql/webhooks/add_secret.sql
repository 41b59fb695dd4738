-- Give a tenant its first secret.
-- Locks: none that others wait for. Zero rows: it has one.
INSERT INTO ai_webhook_secrets (tenant_id, secret)
VALUES (%(tenant_id)s::uuid, %(secret)s::text)
ON CONFLICT (tenant_id) WHERE expires_at IS NULL DO NOTHING
RETURNING secret;
