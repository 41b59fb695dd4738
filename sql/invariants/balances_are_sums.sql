-- A budgeted tenant's balance is the sum of its entries.
-- Locks: none. Zero rows: it holds.
SELECT t.id AS tenant_id, t.granted_micros, t.reserved_micros, t.charged_micros, l.granted, l.reserved, l.charged
FROM ai_tenants t
CROSS JOIN LATERAL (
    SELECT coalesce(sum(amount_micros) FILTER (WHERE entry IN ('grant', 'adjust')), 0) AS granted,
           coalesce(sum(amount_micros) FILTER (WHERE entry = 'reserve'), 0)
           - coalesce(sum(amount_micros) FILTER (WHERE entry IN ('charge', 'release')), 0) AS reserved,
           coalesce(sum(amount_micros) FILTER (WHERE entry = 'charge'), 0) AS charged
    FROM ai_ledger WHERE tenant_id = t.id
) l
WHERE t.budgeted
  AND (t.granted_micros, t.reserved_micros, t.charged_micros) IS DISTINCT FROM (l.granted, l.reserved, l.charged)
LIMIT %(most_rows)s::integer;
