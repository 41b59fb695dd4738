-- Take note that a provider refused work under our key: its account is stopped, or it has too much to do.
-- Why: a refusal of the account shuts the gate at once, because the next job would be refused as well. An overload shuts
-- it only after many in a row, because one busy moment says little. The first refusal after an opening counts from one.
-- Locks: the gate. Always one row; `shut_now` says that this very refusal has shut it.
INSERT INTO ai_gates AS g (provider, key_fingerprint, state, reason, code, refusals, shut_at, probe_at, probe_seconds)
SELECT r.provider, r.key_fingerprint, CASE WHEN r.shuts THEN 'shut' ELSE 'open' END, r.reason, r.code, 1,
       CASE WHEN r.shuts THEN now() END, CASE WHEN r.shuts THEN now() + r.wait END, r.first_seconds
FROM (SELECT %(provider)s::text AS provider, %(key_fingerprint)s::text AS key_fingerprint, %(reason)s::text AS reason,
             %(code)s::text AS code, %(most_refusals)s::integer <= 1 AS shuts,
             %(first_seconds)s::integer AS first_seconds,
             %(first_seconds)s::integer * interval '1 second' AS wait) r
ON CONFLICT (provider, key_fingerprint) DO UPDATE
SET refusals = g.refusals + 1, code = excluded.code,
    reason = CASE WHEN g.state = 'shut' AND g.reason = 'account' THEN g.reason ELSE excluded.reason END,
    state = CASE WHEN g.state = 'shut' OR g.refusals + 1 >= %(most_refusals)s::integer THEN 'shut' ELSE 'open' END,
    shut_at = CASE WHEN g.state = 'shut' THEN g.shut_at
                   WHEN g.refusals + 1 >= %(most_refusals)s::integer THEN now() END,
    probe_at = CASE WHEN g.state = 'shut' THEN g.probe_at
                    WHEN g.refusals + 1 >= %(most_refusals)s::integer
                    THEN now() + %(first_seconds)s::integer * interval '1 second' END,
    probe_seconds = CASE WHEN g.state = 'shut' AND (g.reason = 'account' OR excluded.reason = 'overload')
                         THEN g.probe_seconds ELSE excluded.probe_seconds END
RETURNING state = 'shut' AND shut_at = now() AS shut_now;
