-- Each stay has one reservation; of one that has ended it is charged and released, exactly.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.status, stays.stay, count(l.entry) FILTER (WHERE l.entry = 'reserve') AS reserves,
       coalesce(sum(l.amount_micros) FILTER (WHERE l.entry = 'reserve'), 0) AS reserved,
       coalesce(sum(l.amount_micros) FILTER (WHERE l.entry IN ('charge', 'release')), 0) AS closed
FROM ai_jobs j
CROSS JOIN LATERAL generate_series(1, j.stay) AS stays (stay)
LEFT JOIN ai_ledger l ON l.job_id = j.id AND l.stay = stays.stay
GROUP BY j.id, stays.stay
HAVING count(l.entry) FILTER (WHERE l.entry = 'reserve') <> 1
    OR (stays.stay = j.stay AND j.finished_at IS NULL AND count(l.entry) <> 1)
    OR ((stays.stay < j.stay OR j.finished_at IS NOT NULL)
        AND (count(l.entry) < 2
             OR coalesce(sum(l.amount_micros) FILTER (WHERE l.entry = 'reserve'), 0)
                <> coalesce(sum(l.amount_micros) FILTER (WHERE l.entry IN ('charge', 'release')), 0)))
LIMIT %(most_rows)s::integer;
