-- Read how several jobs stand, for those who wait for a change.
-- Locks: none. A job that is missing does not exist any more.
SELECT j.id, j.version, j.status
FROM ai_jobs j
JOIN unnest(%(job_ids)s::uuid[], %(tenant_ids)s::uuid[]) AS w (job_id, tenant_id)
  ON w.job_id = j.id AND w.tenant_id = j.tenant_id;
