-- Read all tenants, oldest first.
-- Locks: none.
SELECT id, name, created_at FROM ai_tenants ORDER BY created_at, id;
