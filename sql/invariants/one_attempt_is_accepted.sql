-- A job has an accepted attempt exactly when it has succeeded, and never two.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.status, count(a.number) AS accepted
FROM ai_jobs j
LEFT JOIN ai_attempts a ON a.job_id = j.id AND a.accepted
GROUP BY j.id
HAVING count(a.number) <> (j.status = 'succeeded')::integer
LIMIT %(most_rows)s::integer;
