-- Read the attempts of one job with their calls, oldest first.
-- Locks: none. Zero rows: no such job, another tenant's, or not claimed yet (the caller has looked for the job itself).
SELECT a.number, a.outcome, a.error, a.started_at, a.finished_at, a.worker_id, a.accepted AS attempt_accepted, a.counted,
       c.step, c.provider, c.model, c.stage, c.outcome AS call_outcome, c.sent_at, c.first_byte_at,
       c.finished_at AS call_finished_at, c.http_status, c.provider_request_id, c.provider_cancel,
       c.provider_operation_id, c.error AS call_error, c.late, c.rejected, c.accepted AS call_accepted, c.ask_by, c.asked_at,
       c.input_tokens, c.cached_tokens, c.output_tokens, c.reasoning_tokens, c.cache_write_tokens,
       c.cost_basis, c.cost_micros, c.cost_ceiling_micros
FROM ai_attempts a
LEFT JOIN ai_calls c ON c.job_id = a.job_id AND c.attempt = a.number
WHERE a.job_id = %(job_id)s::uuid AND a.tenant_id = %(tenant_id)s::uuid
ORDER BY a.number, c.sent_at, c.step;
