-- A receiver has said that it is gone: what waits for it is given up, and what comes later is not tried.
-- Locks: delivery, in the order of ids. Zero rows: the try was given up, and another may be under way.
WITH gone AS (
    SELECT tenant_id, receiver, url FROM ai_webhook_deliveries WHERE id = %(id)s::uuid AND token = %(token)s::uuid
), noted AS (
    INSERT INTO ai_webhook_disabled (tenant_id, url) SELECT tenant_id, url FROM gone ON CONFLICT DO NOTHING
), locked AS MATERIALIZED (
    SELECT d.id FROM ai_webhook_deliveries d JOIN gone USING (tenant_id, receiver, url)
    WHERE d.status = 'pending'
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE ai_webhook_deliveries d
SET status = 'disabled', token = NULL, ended_at = now(), last_status = 410, last_error = 'gone'
FROM locked
WHERE d.id = locked.id
RETURNING d.id;
