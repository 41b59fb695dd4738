-- Set this transaction's patience: a migration must rather fail and be tried again than queue all traffic behind it.
-- Locks: none.
SELECT set_config('lock_timeout', %(lock_timeout)s::text, true), set_config('statement_timeout', '0', true);
