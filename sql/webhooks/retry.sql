-- Put a delivery that was not taken back, to be tried again later.
-- Locks: delivery. Zero rows: the try was given up, and another may be under way.
UPDATE ai_webhook_deliveries
SET token = NULL, due_at = now() + %(delay_seconds)s::float8 * interval '1 second',
    last_status = %(last_status)s::integer, last_error = %(last_error)s::text
WHERE id = %(id)s::uuid AND token = %(token)s::uuid
RETURNING id;
