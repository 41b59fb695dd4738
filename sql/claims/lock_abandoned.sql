-- Lock the running jobs of a worker process that is known to be dead, whatever their leases say.
-- Why: the supervisor has seen its child end, so nobody has to wait for a lease.
-- `askable`: the provider can be asked about each call that is open. `deduplicated`: it does each only once.
-- Locks: job, in the order of ids, SKIP LOCKED. Zero rows: nothing left to give back.
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
WHERE j.status = 'running' AND j.worker_id = %(worker_id)s::text
ORDER BY j.id
LIMIT %(limit)s::integer
FOR UPDATE OF j SKIP LOCKED;
