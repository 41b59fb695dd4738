-- Set prices, each from a moment on; a price of the same moment is replaced only while no call has used it.
-- Why a used one stays: what a call cost then must not change now.
-- Locks: the prices. A price missing from the answer has been used and differs.
INSERT INTO ai_prices AS p (
    provider, model, valid_from, valid_until, input_micros, cached_micros, cache_write_micros, output_micros,
    reasoning_micros, request_micros, max_output_tokens)
SELECT r.provider, r.model, coalesce(r.valid_from, now()), r.valid_until, r.input_micros, r.cached_micros,
       r.cache_write_micros, r.output_micros, r.reasoning_micros, coalesce(r.request_micros, 0), r.max_output_tokens
FROM jsonb_to_recordset(%(prices)s::jsonb) AS r (
    provider text, model text, valid_from timestamptz, valid_until timestamptz, input_micros bigint, cached_micros bigint,
    cache_write_micros bigint, output_micros bigint, reasoning_micros bigint, request_micros bigint,
    max_output_tokens bigint)
ON CONFLICT (provider, model, valid_from) DO UPDATE
SET valid_until = excluded.valid_until, input_micros = excluded.input_micros, cached_micros = excluded.cached_micros,
    cache_write_micros = excluded.cache_write_micros, output_micros = excluded.output_micros,
    reasoning_micros = excluded.reasoning_micros, request_micros = excluded.request_micros,
    max_output_tokens = excluded.max_output_tokens
WHERE NOT EXISTS (SELECT FROM ai_calls c WHERE c.price_id = p.id)
   OR (p.input_micros, p.output_micros, p.request_micros) = (excluded.input_micros, excluded.output_micros, excluded.request_micros)
RETURNING p.provider, p.model;
