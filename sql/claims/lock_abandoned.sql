-- Lock the running jobs of a worker process that is known to be dead, whatever their leases say.
-- Why: the supervisor has seen its child end, so nobody has to wait for a lease.
-- Locks: job, in the order of ids, SKIP LOCKED. Zero rows: nothing left to give back.
SELECT j.id, j.tenant_id, j.run_token, j.worker_id, j.attempts, j.kind, j.queue, j.max_attempts, j.attempts_counted, j.on_unknown,
       j.unknown_retries, j.max_unknown_retries, j.unsent_deaths, j.cancel_requested_at IS NOT NULL AS cancel_requested,
       coalesce(j.expires_at <= now(), false) AS expired,
       EXISTS (SELECT FROM ai_calls c WHERE c.job_id = j.id AND c.attempt = j.attempts
               AND (c.stage IN ('sent', 'responding') OR c.outcome = 'unknown')) AS sent
FROM ai_jobs j
WHERE j.status = 'running' AND j.worker_id = %(worker_id)s::text
ORDER BY j.id
LIMIT %(limit)s::integer
FOR UPDATE OF j SKIP LOCKED;
