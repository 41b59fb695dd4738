-- Say where a job's events stand: the first and the last that there are, and whether more will come by themselves.
-- Locks: none. Zero rows: no such job, or another tenant's, which must look the same.
SELECT j.status,
       (SELECT min(e.seq) FROM ai_events e WHERE e.job_id = j.id) AS first_seq,
       (SELECT max(e.seq) FROM ai_events e WHERE e.job_id = j.id) AS last_seq
FROM ai_jobs j
WHERE j.id = %(job_id)s::uuid AND j.tenant_id = %(tenant_id)s::uuid;
