-- Record how calls ended, with what they cost and, when they succeeded, what they brought.
-- Why the condition is the attempt's own token and not the job's: the answer and its cost are facts about this call,
-- whoever owns the job by now. A call that was closed before, because its worker was thought dead, is left to
-- finish_late.sql, which locks the job first.
-- Locks: call, in the order of their keys.
-- A call missing from the answer had been finished already, or was never sent under this token.
WITH ending AS MATERIALIZED (
    SELECT e.*
    FROM jsonb_to_recordset(%(endings)s::jsonb) AS e (
        job_id uuid, run_token uuid, step text, outcome text, first_byte_seconds float8, http_status smallint,
        provider_request_id text, provider_operation_id text, input_tokens bigint, cached_tokens bigint,
        output_tokens bigint, reasoning_tokens bigint, cache_write_tokens bigint, cost_micros bigint, cost_basis text, provider_cancel text, error jsonb, result jsonb)
), open AS MATERIALIZED (
    SELECT c.job_id, c.attempt, c.step, e.run_token
    FROM ai_calls c
    JOIN ai_attempts a ON a.job_id = c.job_id AND a.number = c.attempt
    JOIN ending e ON e.job_id = c.job_id AND e.run_token = a.run_token AND e.step = c.step
    WHERE c.stage <> 'finished'
    ORDER BY c.job_id, c.attempt, c.step
    FOR NO KEY UPDATE OF c
)
UPDATE ai_calls c
SET stage = 'finished', outcome = e.outcome, finished_at = now(),
    first_byte_at = c.sent_at + e.first_byte_seconds * interval '1 second',
    http_status = e.http_status, provider_request_id = e.provider_request_id,
    provider_operation_id = coalesce(e.provider_operation_id, c.provider_operation_id),
    input_tokens = e.input_tokens, cached_tokens = e.cached_tokens,
    output_tokens = e.output_tokens, reasoning_tokens = e.reasoning_tokens, cache_write_tokens = e.cache_write_tokens,
    cost_micros = e.cost_micros, cost_basis = e.cost_basis,
    provider_cancel = e.provider_cancel, error = e.error, result = e.result
FROM open
JOIN ending e ON e.job_id = open.job_id AND e.run_token = open.run_token AND e.step = open.step
WHERE c.job_id = open.job_id AND c.attempt = open.attempt AND c.step = open.step
RETURNING c.job_id, c.step;
