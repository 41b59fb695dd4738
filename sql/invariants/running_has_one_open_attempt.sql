-- A job has an open attempt exactly while it runs, and never two.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.status, count(a.number) AS open_attempts
FROM ai_jobs j
LEFT JOIN ai_attempts a ON a.job_id = j.id AND a.finished_at IS NULL
GROUP BY j.id
HAVING count(a.number) <> (j.status = 'running')::integer
LIMIT %(most_rows)s::integer;
