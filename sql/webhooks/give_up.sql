-- Give a delivery up that was tried for a day.
-- Locks: delivery. Zero rows: the try was given up, and another may be under way.
UPDATE ai_webhook_deliveries
SET status = 'failed', token = NULL, ended_at = now(), last_status = %(last_status)s::integer,
    last_error = %(last_error)s::text
WHERE id = %(id)s::uuid AND token = %(token)s::uuid
RETURNING id;
