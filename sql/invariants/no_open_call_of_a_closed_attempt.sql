-- A call ends with its attempt at the latest.
-- Locks: none. Zero rows: it holds.
SELECT c.job_id, c.attempt, c.step
FROM ai_calls c
JOIN ai_attempts a ON a.job_id = c.job_id AND a.number = c.attempt
WHERE a.finished_at IS NOT NULL AND c.finished_at IS NULL
LIMIT %(most_rows)s::integer;
