-- Make the table that records which migrations were applied.
-- Locks: only what creating a table needs. It changes nothing when the table is there.
CREATE TABLE IF NOT EXISTS ai_schema_migrations (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
