-- The counted attempts of a stay are those that say so, and no more than allowed.
-- Locks: none. Zero rows: it holds.
SELECT j.id AS job_id, j.attempts_counted, count(a.number) AS found, j.max_attempts
FROM ai_jobs j
LEFT JOIN ai_attempts a ON a.job_id = j.id AND a.counted AND a.stay = j.stay
GROUP BY j.id
HAVING count(a.number) <> j.attempts_counted OR j.attempts_counted > j.max_attempts
LIMIT %(most_rows)s::integer;
