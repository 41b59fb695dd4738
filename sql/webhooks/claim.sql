-- Claim deliveries that are due, going round the receivers, and renew the courier's duty in the same statement.
-- Why receiver by receiver: one that is slow, or has a million deliveries, is a single step of the walk, and keeps none
-- of the others waiting. The walk goes on after the receiver that the last one ended at.
-- Why two limits: no receiver has more than `per_receiver` under way. And a tenant names as many hosts as it likes, so
-- that none has more than `per_tenant`; which of its own it is then, chance decides, so that none of those starves.
-- Why it counts rows: no counter can leak. Why due_at is moved ahead: a try whose process dies is due again when that
-- time has come; until then it counts as under way. A settlement needs the token.
-- Locks: the duty; delivery, SKIP LOCKED. The first row is there even without a claim: `on_duty` is false when another
-- process holds the duty, `last_tenant` and `last_receiver` say where the walk ended, NULL at the end of the round.
WITH RECURSIVE duty AS (
    UPDATE ai_duties
    SET holder = %(worker_id)s::text, held_until = now() + %(hold_seconds)s::float8 * interval '1 second'
    WHERE name = 'courier' AND (holder = %(worker_id)s::text OR held_until < now())
    RETURNING name
), receivers AS (
    (SELECT tenant_id, receiver, 1 AS place FROM ai_webhook_deliveries
     WHERE status = 'pending' AND %(limit)s::integer > 0
       AND (tenant_id, receiver) > (%(after_tenant)s::uuid, %(after_receiver)s::text)
     ORDER BY tenant_id, receiver LIMIT 1)
    UNION ALL
    SELECT next.tenant_id, next.receiver, receivers.place + 1
    FROM receivers
    CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.receiver FROM ai_webhook_deliveries d
        WHERE d.status = 'pending' AND (d.tenant_id, d.receiver) > (receivers.tenant_id, receivers.receiver)
        ORDER BY d.tenant_id, d.receiver LIMIT 1
    ) next
    WHERE receivers.place < 200
), busy AS MATERIALIZED (
    SELECT tenant_id, receiver, count(*)::integer AS tries
    FROM ai_webhook_deliveries
    WHERE token IS NOT NULL AND due_at > now()
    GROUP BY tenant_id, receiver
), due AS MATERIALIZED (
    SELECT first.id, r.tenant_id, r.place,
           row_number() OVER (PARTITION BY r.tenant_id ORDER BY random())
               + coalesce((SELECT sum(b.tries) FROM busy b WHERE b.tenant_id = r.tenant_id), 0) AS nth_of_tenant
    FROM receivers r
    CROSS JOIN LATERAL (
        SELECT d.id FROM ai_webhook_deliveries d
        WHERE d.status = 'pending' AND d.tenant_id = r.tenant_id AND d.receiver = r.receiver AND d.due_at <= now()
        ORDER BY d.due_at, d.id
        LIMIT greatest(0, %(per_receiver)s::integer - coalesce((
            SELECT b.tries FROM busy b WHERE b.tenant_id = r.tenant_id AND b.receiver = r.receiver), 0))
    ) first
), picked AS MATERIALIZED (
    SELECT d.id, due.place
    FROM due
    JOIN ai_webhook_deliveries d ON d.id = due.id
    WHERE due.nth_of_tenant <= %(per_tenant)s::integer AND d.status = 'pending' AND d.due_at <= now()
      AND EXISTS (SELECT FROM duty)
    ORDER BY due.place
    LIMIT %(limit)s::integer
    FOR UPDATE OF d SKIP LOCKED
), claimed AS (
    UPDATE ai_webhook_deliveries d
    SET token = gen_random_uuid(), tries = d.tries + 1, due_at = now() + %(lease_seconds)s::float8 * interval '1 second'
    FROM picked
    WHERE d.id = picked.id
    RETURNING d.id, d.token, d.tenant_id, d.job_id, d.type, d.url, d.tries, d.created_at
), last AS (
    SELECT r.tenant_id, r.receiver FROM receivers r
    WHERE r.place = CASE WHEN (SELECT count(*) FROM picked) >= %(limit)s::integer THEN (SELECT max(place) FROM picked)
                         WHEN (SELECT max(place) FROM receivers) >= 200 THEN 200 END
)
SELECT EXISTS (SELECT FROM duty) AS on_duty, last.tenant_id AS last_tenant, last.receiver AS last_receiver,
       claimed.*, j.kind, j.user_id
FROM (SELECT 1) always
LEFT JOIN last ON true
LEFT JOIN claimed ON true
LEFT JOIN ai_jobs j ON j.id = claimed.job_id;
