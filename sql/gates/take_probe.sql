-- Take the right to try a shut gate with one job. The next probe is due after twice as long, up to the cap of its reason,
-- whatever becomes of this one: a prober that dies leaves nothing to clean up.
-- Locks: the gate. Zero rows: it is open, no probe is due, or another worker has taken it.
UPDATE ai_gates g
SET probe_at = now() + least(2 * g.probe_seconds, cap.seconds) * interval '1 second',
    probe_seconds = least(2 * g.probe_seconds, cap.seconds)
FROM (VALUES ('account', %(account_cap_seconds)s::integer), ('overload', %(overload_cap_seconds)s::integer))
     AS cap (reason, seconds)
WHERE g.provider = %(provider)s::text AND g.key_fingerprint = %(key_fingerprint)s::text
  AND g.state = 'shut' AND g.probe_at <= now() AND cap.reason = g.reason
RETURNING g.provider;
