-- Each stay that has ended has one terminal event, and an ended job's is its last event.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.status, j.stay, count(e.seq) AS terminal_events
FROM ai_jobs j
LEFT JOIN ai_events e ON e.job_id = j.id AND e.type IN ('job.succeeded', 'job.failed', 'job.cancelled')
GROUP BY j.id
HAVING count(e.seq) <> j.stay - 1 + (j.finished_at IS NOT NULL)::integer
    OR (j.finished_at IS NOT NULL AND max(e.seq) <> j.event_seq)
LIMIT %(most_rows)s::integer;
