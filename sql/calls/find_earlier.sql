-- Find what earlier attempts of this job left of a step: an answer that is paid for, or a call whose answer was lost and
-- that the provider can be asked about.
-- `forsaken`: this very request is new, and an earlier attempt left a call whose outcome is open still.
-- Why it marks the answer as offered: settling looks for answers that came late and that no attempt has been given yet.
-- Why it counts refused answers: the key under which a provider does work once must be another one after a refusal.
-- Locks: call (the one whose answer is offered). Always one row.
WITH stored AS MATERIALIZED (
    SELECT c.attempt, c.result, c.input_tokens, c.cached_tokens, c.output_tokens, c.reasoning_tokens,
           c.cache_write_tokens
    FROM ai_calls c
    WHERE c.job_id = %(job_id)s::uuid AND c.step = %(step)s::text AND c.request_hash = %(request_hash)s::bytea
      AND c.outcome = 'succeeded' AND c.result IS NOT NULL AND NOT c.rejected
    ORDER BY c.attempt
    LIMIT 1
), offered AS (
    UPDATE ai_calls c SET offered = true
    FROM stored
    WHERE c.job_id = %(job_id)s::uuid AND c.attempt = stored.attempt AND c.step = %(step)s::text AND NOT c.offered
), lost AS (
    SELECT c.attempt, a.run_token, c.provider_operation_id, c.dedupe_key,
           extract(epoch FROM now() - c.sent_at)::float8 AS age_seconds, c.price_id
    FROM ai_calls c
    JOIN ai_attempts a ON a.job_id = c.job_id AND a.number = c.attempt
    WHERE c.job_id = %(job_id)s::uuid AND c.step = %(step)s::text AND c.request_hash = %(request_hash)s::bytea
      AND c.outcome = 'unknown' AND c.asked_at IS NULL
      AND (c.ask_by = 'key' OR (c.ask_by = 'operation' AND c.provider_operation_id IS NOT NULL))
    ORDER BY c.attempt DESC
    LIMIT 1
)
SELECT stored.attempt AS stored_attempt, stored.result, stored.input_tokens, stored.cached_tokens, stored.output_tokens,
       stored.reasoning_tokens, stored.cache_write_tokens, lost.attempt AS lost_attempt, lost.run_token AS lost_run_token,
       lost.provider_operation_id, lost.dedupe_key, lost.age_seconds,
       lost.price_id, p.input_micros, p.cached_micros, p.cache_write_micros, p.output_micros, p.reasoning_micros,
       p.request_micros,
       (SELECT count(*) FROM ai_calls c
        WHERE c.job_id = %(job_id)s::uuid AND c.step = %(step)s::text AND c.rejected)::integer AS rejected,
       EXISTS (SELECT FROM ai_calls_left_open o WHERE o.job_id = %(job_id)s::uuid AND o.attempt < %(attempt)s::integer)
       AND NOT EXISTS (
           SELECT FROM ai_calls c
           WHERE c.job_id = %(job_id)s::uuid AND c.step = %(step)s::text AND c.request_hash = %(request_hash)s::bytea
       ) AS forsaken
FROM (SELECT 1) always
LEFT JOIN stored ON true
LEFT JOIN lost ON true
LEFT JOIN ai_prices p ON p.id = lost.price_id;
