-- Let a tenant's secrets sign for so long at most, beside the one that replaces them.
-- Why all of them: whoever replaces one that has leaked gives it no time, and it may be one that was replaced before.
-- Locks: the secrets. Zero rows: it has none, or all end sooner.
UPDATE ai_webhook_secrets
SET expires_at = now() + %(keep_seconds)s::float8 * interval '1 second'
WHERE tenant_id = %(tenant_id)s::uuid
  AND (expires_at IS NULL OR expires_at > now() + %(keep_seconds)s::float8 * interval '1 second')
RETURNING id;
