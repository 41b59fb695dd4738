-- What a call cost is known with a basis, or unknown and null; nothing is 0 for want of knowledge.
-- Locks: none. Zero rows: it holds.
SELECT job_id, attempt, step, outcome, cost_basis, cost_micros
FROM ai_calls
WHERE finished_at IS NOT NULL AND (cost_basis = 'unknown') <> (cost_micros IS NULL)
LIMIT %(most_rows)s::integer;
