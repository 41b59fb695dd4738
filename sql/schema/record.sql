-- Record a migration in the transaction that applies it.
-- Locks: the new row.
INSERT INTO ai_schema_migrations (number, name, checksum) VALUES (%(number)s::integer, %(name)s::text, %(checksum)s::text);
