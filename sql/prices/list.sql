-- Read the prices, newest first, those that are in force now marked.
-- Locks: none.
SELECT p.provider, p.model, p.valid_from, p.valid_until, p.input_micros, p.cached_micros, p.cache_write_micros,
       p.output_micros, p.reasoning_micros, p.request_micros, p.max_output_tokens,
       p.id = (SELECT q.id FROM ai_prices q
               WHERE q.provider = p.provider AND q.model = p.model AND q.valid_from <= now()
                 AND (q.valid_until IS NULL OR q.valid_until > now())
               ORDER BY q.valid_from DESC LIMIT 1) IS TRUE AS in_force
FROM ai_prices p
WHERE (%(provider)s::text IS NULL OR p.provider = %(provider)s::text)
ORDER BY p.provider, p.model, p.valid_from DESC;
