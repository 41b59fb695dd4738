-- Revoke a key. API processes notice within the few seconds for which they remember keys.
-- Locks: the key. Zero rows: no such key, or it was revoked before.
UPDATE ai_api_keys SET revoked_at = now() WHERE prefix = %(prefix)s::text AND revoked_at IS NULL
RETURNING id;
