-- Let one migrator at a time into its transaction; the others wait, and then find the work done.
-- Why an advisory lock of the transaction and not of the session: it ends with the process that holds it, and works
-- through a pooler. The number is the project's own, chosen once.
-- Locks: the advisory lock, waiting without limit.
SELECT pg_advisory_xact_lock(4815162342);
