-- Have a receiver that said it was gone told again, from its next delivery on.
-- Locks: the mark. Zero rows: it was not disabled.
DELETE FROM ai_webhook_disabled WHERE tenant_id = %(tenant_id)s::uuid AND url = %(url)s::text RETURNING url;
