-- Give up the duties of a process at once, on leaving or for one that died.
-- Locks: the duties. Zero rows: it held none.
UPDATE ai_duties SET holder = NULL, held_until = '-infinity'
WHERE holder = %(worker_id)s::text;
