-- Attempts, calls, events, entries and deliveries belong to the tenant of their job.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, 'attempt' AS child FROM ai_attempts a JOIN ai_jobs j ON j.id = a.job_id
WHERE a.tenant_id <> j.tenant_id
UNION ALL
SELECT j.id, 'call' FROM ai_calls c JOIN ai_jobs j ON j.id = c.job_id WHERE c.tenant_id <> j.tenant_id
UNION ALL
SELECT j.id, 'event' FROM ai_events e JOIN ai_jobs j ON j.id = e.job_id WHERE e.tenant_id <> j.tenant_id
UNION ALL
SELECT j.id, 'entry' FROM ai_ledger l JOIN ai_jobs j ON j.id = l.job_id WHERE l.tenant_id <> j.tenant_id
UNION ALL
SELECT j.id, 'delivery' FROM ai_webhook_deliveries d JOIN ai_jobs j ON j.id = d.job_id WHERE d.tenant_id <> j.tenant_id
LIMIT %(most_rows)s::integer;
