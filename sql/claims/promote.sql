-- Put delayed jobs whose time has come in line.
-- Why: a job in backoff, or scheduled for later, stands in an index of its own, so that a claim never reads past it.
-- Locks: job (SKIP LOCKED). Zero rows: none is due, or another worker is doing it.
WITH due AS MATERIALIZED (
    SELECT id FROM ai_jobs
    WHERE status = 'queued' AND order_at IS NULL AND run_at <= now()
    ORDER BY run_at, id
    LIMIT 500
    FOR UPDATE SKIP LOCKED
)
UPDATE ai_jobs j
SET order_at = j.run_at - j.priority * interval '1 minute'
FROM due
WHERE j.id = due.id
RETURNING j.queue;
