-- Let another process deliver at once, on leaving in order.
-- Locks: the duty. Zero rows: this process did not hold it.
UPDATE ai_duties SET holder = NULL, held_until = '-infinity'
WHERE name = 'courier' AND holder = %(worker_id)s::text;
