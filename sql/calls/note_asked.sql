-- Record that the provider was asked about a lost call and could not say. Policy then speaks.
-- Locks: call. Zero rows: its outcome is known by now.
UPDATE ai_calls c
SET asked_at = now(), provider_cancel = %(provider_cancel)s::text
FROM ai_attempts a
WHERE a.job_id = %(job_id)s::uuid AND a.run_token = %(run_token)s::uuid
  AND c.job_id = a.job_id AND c.attempt = a.number AND c.step = %(step)s::text AND c.outcome = 'unknown'
RETURNING c.job_id;
