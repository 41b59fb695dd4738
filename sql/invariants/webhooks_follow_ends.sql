-- Each end of a job that asked for a webhook has one delivery, and no other job has any.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.status, j.stay, d.type
FROM ai_jobs j
LEFT JOIN ai_webhook_deliveries d ON d.job_id = j.id AND d.stay = j.stay
WHERE (j.webhook_url IS NOT NULL AND j.finished_at IS NOT NULL AND d.type IS DISTINCT FROM 'job.' || j.status)
   OR (d.id IS NOT NULL AND (j.webhook_url IS NULL OR j.finished_at IS NULL))
LIMIT %(most_rows)s::integer;
