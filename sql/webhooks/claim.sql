-- Claim deliveries that are due, at most two under way for a receiver, going round the receivers.
-- Why receiver by receiver: one that is slow, or has a million deliveries, is a single step of the walk, and keeps none
-- of the others waiting. The walk goes on after the receiver that the last one ended at.
-- Why due_at is moved ahead: a try whose process dies is due again when that time has come; until then it counts as
-- under way. A settlement needs the token.
-- Locks: delivery, SKIP LOCKED. The first row is there even without a claim: `last_tenant` and `last_url` say where the
-- walk ended, NULL at the end of the round; `waiting` whether any delivery is pending at all.
WITH RECURSIVE receivers AS (
    (SELECT tenant_id, url, 1 AS place FROM ai_webhook_deliveries
     WHERE status = 'pending' AND (tenant_id, url) > (%(after_tenant)s::uuid, %(after_url)s::text)
     ORDER BY tenant_id, url LIMIT 1)
    UNION ALL
    SELECT next.tenant_id, next.url, receivers.place + 1
    FROM receivers
    CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.url FROM ai_webhook_deliveries d
        WHERE d.status = 'pending' AND (d.tenant_id, d.url) > (receivers.tenant_id, receivers.url)
        ORDER BY d.tenant_id, d.url LIMIT 1
    ) next
    WHERE receivers.place < 200
), picked AS MATERIALIZED (
    SELECT due.id, receivers.place
    FROM receivers
    CROSS JOIN LATERAL (
        SELECT d.id FROM ai_webhook_deliveries d
        WHERE d.status = 'pending' AND d.tenant_id = receivers.tenant_id AND d.url = receivers.url AND d.due_at <= now()
        ORDER BY d.due_at, d.id
        LIMIT greatest(0, 2 - (
            SELECT count(*) FROM ai_webhook_deliveries f
            WHERE f.status = 'pending' AND f.tenant_id = receivers.tenant_id AND f.url = receivers.url
              AND f.due_at > now() AND f.token IS NOT NULL))
        FOR UPDATE SKIP LOCKED
    ) due
    ORDER BY receivers.place
    LIMIT %(limit)s::integer
), claimed AS (
    UPDATE ai_webhook_deliveries d
    SET token = gen_random_uuid(), tries = d.tries + 1, due_at = now() + %(lease_seconds)s::float8 * interval '1 second'
    FROM picked
    WHERE d.id = picked.id
    RETURNING d.id, d.token, d.tenant_id, d.job_id, d.type, d.url, d.tries, d.created_at
), last AS (
    SELECT r.tenant_id, r.url FROM receivers r
    WHERE r.place = CASE WHEN (SELECT count(*) FROM picked) >= %(limit)s::integer THEN (SELECT max(place) FROM picked)
                         WHEN (SELECT max(place) FROM receivers) >= 200 THEN 200 END
)
SELECT last.tenant_id AS last_tenant, last.url AS last_url,
       EXISTS (SELECT FROM ai_webhook_deliveries WHERE status = 'pending') AS waiting,
       claimed.*, j.kind, j.user_id
FROM (SELECT 1) always
LEFT JOIN last ON true
LEFT JOIN claimed ON true
LEFT JOIN ai_jobs j ON j.id = claimed.job_id;
