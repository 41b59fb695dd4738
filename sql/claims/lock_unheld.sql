-- List the running jobs of this process that it does not know it holds.
-- Why: when the reply to a claim is lost, the claim may have been committed; its tokens are then known to nobody. They
-- were never sent to a provider, so the process gives them back at once instead of waiting for their leases.
-- Locks: job, in the order of ids, SKIP LOCKED. Zero rows: nothing was lost.
SELECT j.id, j.run_token, j.queue
FROM ai_jobs j
WHERE j.status = 'running' AND j.worker_id = %(worker_id)s::text AND NOT (j.id = ANY (%(job_ids)s::uuid[]))
ORDER BY j.id
FOR UPDATE SKIP LOCKED;
