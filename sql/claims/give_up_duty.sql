-- Give up the reaper's duty at once, on leaving or for a process that died.
-- Locks: the duty. Zero rows: this process did not hold it.
UPDATE ai_duties SET holder = NULL, held_until = '-infinity'
WHERE name = 'reaper' AND holder = %(worker_id)s::text;
