-- The number of the last event is kept where the next one is numbered.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, coalesce(a.event_seq, j.event_seq) AS kept, max(e.seq) AS last
FROM ai_jobs j
LEFT JOIN ai_attempts a ON a.job_id = j.id AND a.finished_at IS NULL
JOIN ai_events e ON e.job_id = j.id
GROUP BY j.id, a.event_seq
HAVING max(e.seq) <> coalesce(a.event_seq, j.event_seq)
LIMIT %(most_rows)s::integer;
