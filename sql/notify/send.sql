-- Send hints. Runs after the commits they speak of and in a transaction of its own: inside the others it would make all
-- tenants' commits wait for each other.
SELECT pg_notify(h.channel, h.payload) FROM unnest(%(channels)s::text[], %(payloads)s::text[]) AS h (channel, payload);
