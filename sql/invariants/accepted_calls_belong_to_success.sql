-- Only a job that has succeeded has accepted calls, and each of them brought an answer.
-- Locks: none. Zero rows: it holds.
SELECT c.job_id, c.attempt, c.step, j.status
FROM ai_calls c
JOIN ai_jobs j ON j.id = c.job_id
WHERE c.accepted AND (j.status <> 'succeeded' OR c.outcome <> 'succeeded' OR c.rejected)
LIMIT %(most_rows)s::integer;
