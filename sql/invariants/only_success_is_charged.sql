-- A failed job is charged nothing, nor is a cancelled one whose kind releases.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.status, j.charged_micros
FROM ai_jobs j
WHERE j.charged_micros > 0
  AND (j.status NOT IN ('succeeded', 'cancelled') OR (j.status = 'cancelled' AND j.on_cancel = 'release'))
LIMIT %(most_rows)s::integer;
