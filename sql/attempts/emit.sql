-- Append pieces of output to the events of running jobs. The first piece of an attempt that follows another attempt's
-- output is preceded by a reset, so that the pieces since the last reset are always the text of one attempt.
-- Locks: job FOR SHARE, in the order of ids, so that a settlement waits; attempt.
-- A job missing from the answer has another owner, or is to be cancelled: its output is dropped.
WITH said AS MATERIALIZED (
    SELECT s.job_id, s.run_token, s.text
    FROM unnest(%(job_ids)s::uuid[], %(run_tokens)s::uuid[], %(values)s::text[]) AS s (job_id, run_token, text)
), ours AS MATERIALIZED (
    SELECT j.id, j.attempts, said.text
    FROM ai_jobs j
    JOIN said ON said.job_id = j.id AND said.run_token = j.run_token
    WHERE j.cancel_requested_at IS NULL
    ORDER BY j.id
    FOR SHARE OF j
), opening AS MATERIALIZED (
    SELECT ours.id, ours.attempts, ours.text,
           coalesce(last.type = 'job.output.delta' AND (last.data ->> 'attempt')::integer <> ours.attempts, false) AS resets
    FROM ours
    LEFT JOIN LATERAL (
        SELECT e.type, e.data FROM ai_events e
        WHERE e.job_id = ours.id AND e.type IN ('job.output.delta', 'job.output.reset')
        ORDER BY e.seq DESC LIMIT 1
    ) last ON true
), attempt AS (
    UPDATE ai_attempts a SET event_seq = a.event_seq + 1 + opening.resets::integer
    FROM opening
    WHERE a.job_id = opening.id AND a.number = opening.attempts
    RETURNING a.job_id, a.tenant_id, a.event_seq, opening.text, opening.attempts, opening.resets
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT job_id, event_seq - 1, tenant_id, 'job.output.reset', jsonb_build_object('attempt', attempts)
    FROM attempt WHERE resets
    UNION ALL
    SELECT job_id, event_seq, tenant_id, 'job.output.delta', jsonb_build_object('text', text, 'attempt', attempts)
    FROM attempt
)
SELECT job_id AS id FROM attempt;
