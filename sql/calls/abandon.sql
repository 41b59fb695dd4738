-- Close the open calls of a dead attempt as unknown: the provider may have done, and billed, the work.
-- Locks: call (the caller holds the job's lock). Zero rows: nothing was sent.
UPDATE ai_calls
SET stage = 'finished', outcome = 'unknown', finished_at = now(), cost_basis = 'unknown',
    error = '{"code": "worker_lost", "class": "unknown", "message": "The worker was lost after the request may have been sent."}'
WHERE job_id = %(job_id)s::uuid AND attempt = %(attempt)s::integer AND stage IN ('sent', 'responding');
