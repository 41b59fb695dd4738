-- Record that a receiver has taken a delivery.
-- Locks: delivery. Zero rows: the try was given up, and another may be under way.
UPDATE ai_webhook_deliveries
SET status = 'delivered', token = NULL, ended_at = now(), last_status = %(last_status)s::integer, last_error = NULL
WHERE id = %(id)s::uuid AND token = %(token)s::uuid
RETURNING id;
