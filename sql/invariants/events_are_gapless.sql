-- The events of a job are numbered 1..n.
-- Locks: none. Zero rows: it holds.
SELECT e.job_id, min(e.seq) AS first, max(e.seq) AS last, count(*) AS found
FROM ai_events e
GROUP BY e.job_id
HAVING min(e.seq) <> 1 OR max(e.seq) <> count(*)
LIMIT %(most_rows)s::integer;
