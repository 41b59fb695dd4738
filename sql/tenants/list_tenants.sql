-- Read all tenants, oldest first.
-- Locks: none.
SELECT id, name, created_at, budgeted, granted_micros, reserved_micros, charged_micros FROM ai_tenants ORDER BY created_at, id;
