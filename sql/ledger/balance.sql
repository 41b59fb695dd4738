-- Read what a tenant may still spend.
-- Locks: none. Zero rows: no such tenant.
SELECT budgeted, granted_micros, reserved_micros, charged_micros
FROM ai_tenants WHERE id = %(tenant_id)s::uuid;
