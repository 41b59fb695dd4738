-- Store a new API key: its prefix to find it by, and its digest to compare.
-- Locks: the new row; the tenant, FOR KEY SHARE. Zero rows: no such tenant.
INSERT INTO ai_api_keys (id, tenant_id, prefix, digest, scopes, name)
SELECT %(id)s::uuid, t.id, %(prefix)s::text, %(digest)s::bytea, %(scopes)s::text[], %(name)s::text
FROM ai_tenants t
WHERE t.id = %(tenant_id)s::uuid
RETURNING id;
