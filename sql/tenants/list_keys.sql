-- Read a tenant's keys without their digests, oldest first.
-- Locks: none.
SELECT prefix, name, scopes, created_at, revoked_at FROM ai_api_keys WHERE tenant_id = %(tenant_id)s::uuid
ORDER BY created_at, id;
