-- Lock the job of a call that is about to be recorded late, in a statement of its own: what the next one reads is then what
-- was committed while this one waited.
-- Locks: job. Zero rows: no such job.
SELECT id FROM ai_jobs WHERE id = %(job_id)s::uuid FOR NO KEY UPDATE;
