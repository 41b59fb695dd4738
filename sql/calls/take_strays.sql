-- Take calls whose provider still works on them, as far as anybody knows, for jobs that were cancelled meanwhile: the
-- provider is to be told. Once for each; what it answers is recorded on the call alone, because the job has ended.
-- Locks: call, SKIP LOCKED, so that two processes never take the same. Zero rows: there are none.
WITH stray AS MATERIALIZED (
    SELECT c.job_id, c.attempt, c.step
    FROM ai_calls c
    JOIN ai_jobs j ON j.id = c.job_id
    WHERE c.outcome = 'unknown' AND c.ask_by = 'operation' AND c.provider_operation_id IS NOT NULL
      AND c.provider_cancel = 'not_sent' AND j.status = 'cancelled' AND c.provider = ANY (%(providers)s::text[])
    ORDER BY c.job_id, c.attempt, c.step
    LIMIT %(limit)s::integer
    FOR UPDATE OF c SKIP LOCKED
)
UPDATE ai_calls c
SET provider_cancel = 'requested'
FROM stray
WHERE c.job_id = stray.job_id AND c.attempt = stray.attempt AND c.step = stray.step
RETURNING c.job_id, c.attempt, c.step, c.provider, c.provider_operation_id;
