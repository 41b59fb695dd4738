-- Try deliveries that have ended once more, from the first try on and under the same id: one of them, or all of a job.
-- Locks: delivery. Zero rows: there is none that has ended.
UPDATE ai_webhook_deliveries
SET status = 'pending', tries = 0, due_at = now(), ended_at = NULL, last_status = NULL, last_error = NULL
WHERE status <> 'pending'
  AND (id = %(delivery_id)s::uuid OR job_id = %(job_id)s::uuid)
  AND (%(tenant_id)s::uuid IS NULL OR tenant_id = %(tenant_id)s::uuid)
RETURNING id, job_id, url;
