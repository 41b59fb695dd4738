-- Extend the leases of one process and learn what became of its jobs: the heartbeat.
-- Why SKIP LOCKED: one row locked by somebody else must not let all the others expire. A job that is missing from the
-- answer is therefore unconfirmed, not lost; only a row that says `ours = false` is lost. It is a HOT update: no index
-- knows lease_until. `held` names what the process believes to hold, each with its token.
-- Locks: job, in the order of ids, SKIP LOCKED. Zero rows: nothing held, or all locked elsewhere.
WITH held AS (
    SELECT h.job_id, h.run_token
    FROM unnest(%(job_ids)s::uuid[], %(run_tokens)s::uuid[]) AS h (job_id, run_token)
), free AS MATERIALIZED (
    SELECT j.id, j.run_token = held.run_token AS ours
    FROM ai_jobs j
    JOIN held ON held.job_id = j.id
    ORDER BY j.id
    FOR NO KEY UPDATE OF j SKIP LOCKED
), extended AS (
    UPDATE ai_jobs j
    SET lease_until = now() + %(lease_seconds)s::float8 * interval '1 second'
    FROM free
    WHERE j.id = free.id AND free.ours
    RETURNING j.id, j.cancel_requested_at IS NOT NULL AS cancel_requested
)
SELECT free.id, coalesce(free.ours, false) AS ours, coalesce(extended.cancel_requested, false) AS cancel_requested
FROM free
LEFT JOIN extended ON extended.id = free.id;
