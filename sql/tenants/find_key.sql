-- Find an API key by its prefix, for authentication.
-- Locks: none. Zero rows: no such key, or it was revoked.
SELECT id, tenant_id, digest, scopes FROM ai_api_keys WHERE prefix = %(prefix)s::text AND revoked_at IS NULL;
