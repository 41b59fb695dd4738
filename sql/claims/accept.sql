-- Accept results: the one statement by which a job succeeds.
-- Why the condition is token and status and not the lease: an expired lease that nobody has taken over still holds a
-- paid result, and throwing it away would buy it again. Why cancel is looked at here, under the row's lock: a cancel
-- that was answered 202 must win even against a result that arrives a millisecond later.
-- Many jobs at once, because a commit costs more than a job; locked in the order of their ids, so that two batches
-- cannot deadlock.
-- `used` names the answers of earlier attempts that went into a result. An attempt beyond the allowance, made only to use
-- such an answer, is not counted.
-- Locks: job, attempt, call.
-- A job missing from the answer was not accepted: claims/verdict.sql says why.
WITH settlement AS MATERIALIZED (
    SELECT s.job_id, s.run_token, s.result
    FROM unnest(%(job_ids)s::uuid[], %(run_tokens)s::uuid[], %(results)s::jsonb[]) AS s (job_id, run_token, result)
), ours AS MATERIALIZED (
    SELECT j.id, j.attempts, s.result, j.attempts_counted < j.max_attempts AS counted
    FROM ai_jobs j
    JOIN settlement s ON s.job_id = j.id AND s.run_token = j.run_token   -- a job that has a token is running
    WHERE j.cancel_requested_at IS NULL
    ORDER BY j.id
    FOR NO KEY UPDATE OF j
), attempt AS (
    UPDATE ai_attempts a
    SET finished_at = now(), outcome = 'succeeded', counted = ours.counted, accepted = true, event_seq = a.event_seq + 2
    FROM ours
    WHERE a.job_id = ours.id AND a.number = ours.attempts
    RETURNING a.job_id, a.event_seq, a.counted, ours.result
), call AS (
    UPDATE ai_calls c
    SET accepted = true
    FROM ours
    WHERE c.job_id = ours.id AND c.outcome = 'succeeded' AND NOT c.rejected
      AND (c.attempt = ours.attempts OR (c.job_id, c.attempt, c.step) IN (
          SELECT u.job_id, u.attempt, u.step
          FROM jsonb_to_recordset(%(used)s::jsonb) AS u (job_id uuid, attempt integer, step text)))
), accepted AS (
    UPDATE ai_jobs j
    SET status = 'succeeded', version = j.version + 1, attempts_counted = j.attempts_counted + attempt.counted::integer,
        result = attempt.result, error = NULL, finished_at = now(), event_seq = attempt.event_seq,
        run_token = NULL, worker_id = NULL, lease_until = NULL
    FROM attempt
    WHERE j.id = attempt.job_id
    RETURNING j.id, j.tenant_id, j.attempts, j.event_seq, j.created_at, j.started_at
), events AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq - 1, tenant_id, 'job.attempt_ended',
           jsonb_build_object('attempt', attempts, 'outcome', 'succeeded')
    FROM accepted
    UNION ALL
    SELECT id, event_seq, tenant_id, 'job.succeeded', '{}' FROM accepted
)
SELECT id, attempts,
       extract(epoch FROM now() - created_at)::float8 AS age_seconds,
       extract(epoch FROM now() - started_at)::float8 AS run_seconds
FROM accepted;
