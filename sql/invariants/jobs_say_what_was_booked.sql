-- A job's own amounts are those of its newest stay's entries.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.reserved_micros, j.charged_micros,
       coalesce(sum(l.amount_micros) FILTER (WHERE l.entry = 'reserve'), 0) AS reserved,
       coalesce(sum(l.amount_micros) FILTER (WHERE l.entry = 'charge'), 0) AS charged
FROM ai_jobs j
LEFT JOIN ai_ledger l ON l.job_id = j.id AND l.stay = j.stay
GROUP BY j.id
HAVING coalesce(sum(l.amount_micros) FILTER (WHERE l.entry = 'reserve'), 0) <> j.reserved_micros
    OR coalesce(sum(l.amount_micros) FILTER (WHERE l.entry = 'charge'), 0) <> j.charged_micros
LIMIT %(most_rows)s::integer;
