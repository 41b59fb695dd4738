-- Record how far running jobs have come, as their handlers say.
-- Locks: job, in the order of ids; attempt. A job missing from the answer has another owner, or is to be cancelled.
WITH said AS MATERIALIZED (
    SELECT s.job_id, s.run_token, s.progress
    FROM unnest(%(job_ids)s::uuid[], %(run_tokens)s::uuid[], %(values)s::jsonb[]) AS s (job_id, run_token, progress)
), ours AS MATERIALIZED (
    SELECT j.id, j.attempts, said.progress
    FROM ai_jobs j
    JOIN said ON said.job_id = j.id AND said.run_token = j.run_token
    WHERE j.cancel_requested_at IS NULL
    ORDER BY j.id
    FOR NO KEY UPDATE OF j
), attempt AS (
    UPDATE ai_attempts a SET event_seq = a.event_seq + 1
    FROM ours
    WHERE a.job_id = ours.id AND a.number = ours.attempts
    RETURNING a.job_id, a.tenant_id, a.event_seq, ours.progress
), moved AS (
    UPDATE ai_jobs j SET progress = attempt.progress, version = j.version + 1
    FROM attempt
    WHERE j.id = attempt.job_id
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT job_id, event_seq, tenant_id, 'job.progress', jsonb_build_object('progress', progress) FROM attempt
)
SELECT id FROM ours;
