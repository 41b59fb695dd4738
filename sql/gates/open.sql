-- Open a gate, or forget its refusals: the provider has just taken work, or a person says that it will.
-- `key_fingerprint` NULL means every key of the provider.
-- Locks: the gate. Zero rows: there was nothing against it.
UPDATE ai_gates
SET state = 'open', refusals = 0, shut_at = NULL, probe_at = NULL
WHERE provider = %(provider)s::text
  AND (%(key_fingerprint)s::text IS NULL OR key_fingerprint = %(key_fingerprint)s::text)
  AND (state = 'shut' OR refusals > 0)
RETURNING provider, key_fingerprint;
