-- Read the migrations that were applied, in order.
-- Locks: none. Zero rows: none was.
SELECT number, name, checksum FROM ai_schema_migrations ORDER BY number;
