-- Read a page of a tenant's jobs, newest first (ids are UUIDv7), after the last id of the page before.
-- Why a keyset and not an offset: pages stay cheap at any depth and do not shift when jobs arrive.
-- Locks: none. Zero rows: the list has ended.
SELECT id, tenant_id, status, version, kind, queue, priority, attempts, max_attempts, cancel_requested_at, result, error,
       progress, metadata, user_id, trace_id, created_at, run_at, started_at, finished_at, reserved_micros, charged_micros
FROM ai_jobs
WHERE tenant_id = %(tenant_id)s::uuid
  AND (%(before)s::uuid IS NULL OR id < %(before)s::uuid)
  AND (%(status)s::text IS NULL OR status = %(status)s::text)
  AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s::text)
  AND (%(metadata)s::jsonb IS NULL OR metadata @> %(metadata)s::jsonb)
ORDER BY id DESC
LIMIT %(limit)s::integer;
