-- Read on in the events of several jobs, each from where its reader is, up to `limit` of each.
-- Why the data is text: it goes out as it is, and need not be read and written again for each event.
-- Locks: none. A job without rows has no news. An event is seen before all that follow it: its number was taken under
-- a lock that was held to its commit.
SELECT w.job_id, e.seq, e.type, e.data::text AS data, e.created_at
FROM unnest(%(job_ids)s::uuid[], %(tenant_ids)s::uuid[], %(afters)s::integer[]) AS w (job_id, tenant_id, after)
CROSS JOIN LATERAL (
    SELECT e.seq, e.type, e.data, e.created_at
    FROM ai_events e
    WHERE e.job_id = w.job_id AND e.tenant_id = w.tenant_id AND e.seq > w.after
    ORDER BY e.seq
    LIMIT %(limit)s::integer
) e
ORDER BY w.job_id, e.seq;
