-- Attempts are numbered 1..attempts.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.attempts, count(a.number) AS found
FROM ai_jobs j
LEFT JOIN ai_attempts a ON a.job_id = j.id
GROUP BY j.id
HAVING count(a.number) <> j.attempts OR coalesce(max(a.number), 0) <> j.attempts
LIMIT %(most_rows)s::integer;
