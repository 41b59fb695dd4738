-- Ask whether this session still listens.
-- Why: through a transaction pooler LISTEN succeeds and nothing ever arrives, because the next statement is another
-- session's. Locks: none.
SELECT %(channel)s::text IN (SELECT pg_listening_channels()) AS listening;
