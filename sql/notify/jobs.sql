-- Say that a queue may have work. Runs after the commit it speaks of and in a transaction of its own: inside the other
-- one it would make all tenants' commits wait for each other.
SELECT pg_notify('aijobs_jobs', queue) FROM unnest(%(queues)s::text[]) AS q (queue);
