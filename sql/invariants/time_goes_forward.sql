-- A job is created, started and finished in that order.
-- Locks: none. Zero rows: it holds.
SELECT id AS job_id, created_at, started_at, finished_at
FROM ai_jobs
WHERE NOT (created_at <= coalesce(started_at, created_at)
           AND coalesce(started_at, created_at) <= coalesce(finished_at, 'infinity'))
LIMIT %(most_rows)s::integer;
