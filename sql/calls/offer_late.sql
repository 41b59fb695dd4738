-- Take the answers that came late and that no attempt has been given yet: one more attempt is to be made for them.
-- Why each is taken once: an attempt that does not ask for its step any more must not be made again and again.
-- Locks: call (the caller holds the job's lock). Zero rows: there is none.
UPDATE ai_calls
SET offered = true
WHERE job_id = %(job_id)s::uuid AND late AND outcome = 'succeeded' AND result IS NOT NULL AND NOT rejected AND NOT offered
RETURNING attempt, step;
