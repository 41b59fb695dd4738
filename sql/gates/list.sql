-- List the gates with how many jobs wait behind each.
-- Locks: none. Zero rows: no provider has ever refused anything.
SELECT g.provider, g.key_fingerprint, g.state, g.reason, g.code, g.refusals, g.shut_at, g.probe_at,
       CASE WHEN g.state = 'shut'
            THEN (SELECT count(*) FROM ai_jobs j WHERE j.status = 'queued' AND j.provider = g.provider) END AS jobs_waiting
FROM ai_gates g
ORDER BY g.provider, g.key_fingerprint;
