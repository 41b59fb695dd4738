-- Count what is waiting, running and held now, by queue.
-- Locks: none. Zero rows: nothing is open.
SELECT queue, count(*) FILTER (WHERE status = 'queued') AS queued, count(*) FILTER (WHERE status = 'running') AS running,
       count(*) FILTER (WHERE status = 'held') AS held,
       extract(epoch FROM now() - min(run_at) FILTER (WHERE status = 'queued' AND run_at <= now()))::float8
           AS oldest_queued_seconds,
       count(DISTINCT worker_id) AS workers
FROM ai_jobs
WHERE status IN ('queued', 'running', 'held')
GROUP BY queue
ORDER BY queue;
