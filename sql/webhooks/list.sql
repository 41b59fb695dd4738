-- List deliveries, newest first.
-- Locks: none. Zero rows: there are none.
SELECT id, tenant_id, job_id, type, url, status, tries, last_status, last_error, created_at, due_at, ended_at
FROM ai_webhook_deliveries
WHERE (%(tenant_id)s::uuid IS NULL OR tenant_id = %(tenant_id)s::uuid)
  AND (%(job_id)s::uuid IS NULL OR job_id = %(job_id)s::uuid)
  AND (%(status)s::text IS NULL OR status = %(status)s::text)
ORDER BY created_at DESC, id
LIMIT %(limit)s::integer;
