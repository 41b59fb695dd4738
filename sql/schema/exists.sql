-- Ask whether any migration was ever recorded here.
-- Locks: none.
SELECT to_regclass('ai_schema_migrations') IS NOT NULL AS found;
