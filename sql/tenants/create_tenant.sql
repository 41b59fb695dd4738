-- Create a tenant, or find the one of that name when `reuse` says so.
-- Locks: the new row. Zero rows: the name is taken and was not to be reused.
INSERT INTO ai_tenants (id, name) VALUES (%(id)s::uuid, %(name)s::text)
ON CONFLICT (name) DO UPDATE SET name = excluded.name WHERE %(reuse)s::boolean
RETURNING id;
