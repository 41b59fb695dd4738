-- Lock the jobs whose lease has run out, for the reaper, and renew the reaper's duty in the same statement.
-- Why it reads no times and no payload: a row with an odd value must not stop the recovery of all the others. Why it
-- names the duty: one process of the fleet reaps; whoever holds the duty, or finds it vacant, is that one.
-- `sent` says whether the dead attempt may have reached a provider, which decides between repeating and asking.
-- `askable`: the provider can be asked about each call that is open. `deduplicated`: it does each only once.
-- Locks: the duty; job, in the order of ids, SKIP LOCKED.
-- The first row is there even without an expired lease; `on_duty` is false when another process holds the duty.
WITH duty AS (
    UPDATE ai_duties
    SET holder = %(worker_id)s::text, held_until = now() + %(hold_seconds)s::float8 * interval '1 second'
    WHERE name = 'reaper' AND (holder = %(worker_id)s::text OR held_until < now())
    RETURNING name
), expired AS MATERIALIZED (
    SELECT j.id, j.tenant_id, j.run_token, j.worker_id, j.attempts, j.kind, j.queue, j.max_attempts, j.attempts_counted, j.on_unknown,
       j.unknown_retries, j.max_unknown_retries, j.unsent_deaths, j.cancel_requested_at IS NOT NULL AS cancel_requested,
       coalesce(j.expires_at <= now(), false) AS expired,
       coalesce(open.sent, false) AS sent, coalesce(open.askable, false) AS askable,
       coalesce(open.deduplicated, false) AS deduplicated
    FROM ai_jobs j
    LEFT JOIN LATERAL (
        SELECT true AS sent, bool_and(coalesce(c.ask_by = 'repeat', false)) AS deduplicated,
               bool_and(c.asked_at IS NULL AND coalesce(
           c.ask_by = 'key' OR (c.ask_by = 'operation' AND c.provider_operation_id IS NOT NULL), false))
                   AS askable
        FROM ai_calls c
        WHERE c.job_id = j.id AND c.attempt = j.attempts AND (c.stage IN ('sent', 'responding') OR c.outcome = 'unknown')
        HAVING count(*) > 0
    ) open ON true
    WHERE j.status = 'running' AND j.lease_until < now() AND EXISTS (SELECT FROM duty)
    ORDER BY j.id
    LIMIT %(limit)s::integer
    FOR UPDATE OF j SKIP LOCKED
)
SELECT EXISTS (SELECT FROM duty) AS on_duty, expired.*
FROM (SELECT 1) always
LEFT JOIN expired ON true;
