-- Sum up what jobs of a period came to, by day, kind, provider, model or user: what was asked, what it cost, what was
-- charged. The period is of the jobs' creation, by their ids, which sort by time.
-- Why provider and model are taken from the calls where there are any: a handler's job may call what it likes. A job is
-- counted with its own provider and model all the same, so that no job is counted twice.
-- `cost_most_micros` counts the ceiling of a call whose cost is not known; `cost_unbounded` those without even that.
-- Locks: none. Zero rows: no jobs.
WITH job AS MATERIALIZED (
    SELECT j.id, j.status, j.attempts, j.charged_micros, CASE %(group_by)s::text
               WHEN 'day' THEN to_char(j.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')
               WHEN 'kind' THEN j.kind
               WHEN 'provider' THEN coalesce(j.provider, '')
               WHEN 'model' THEN coalesce(j.model, '')
               WHEN 'user' THEN coalesce(j.user_id, '')
               ELSE 'all' END AS grp
    FROM ai_jobs j
    WHERE (%(tenant_id)s::uuid IS NULL OR j.tenant_id = %(tenant_id)s::uuid)
      AND j.id >= %(from_id)s::uuid AND j.id < %(until_id)s::uuid
), jobs AS (
    SELECT grp, count(*) AS jobs, count(*) FILTER (WHERE status = 'succeeded') AS accepted,
           count(*) FILTER (WHERE status = 'succeeded' AND attempts = 1) AS first_try,
           sum(attempts)::bigint AS attempts, sum(greatest(attempts - 1, 0))::bigint AS retries,
           sum(charged_micros)::bigint AS charged_micros
    FROM job GROUP BY grp
), calls AS (
    SELECT CASE %(group_by)s::text WHEN 'provider' THEN c.provider WHEN 'model' THEN coalesce(c.model, '')
                                   ELSE job.grp END AS grp,
           count(*) AS calls, count(*) FILTER (WHERE c.outcome = 'unknown') AS unknown,
           coalesce(sum(c.input_tokens), 0)::bigint AS input_tokens,
           coalesce(sum(c.cached_tokens), 0)::bigint AS cached_tokens,
           coalesce(sum(c.output_tokens), 0)::bigint AS output_tokens,
           coalesce(sum(c.reasoning_tokens), 0)::bigint AS reasoning_tokens,
           coalesce(sum(c.cost_micros), 0)::bigint AS cost_known_micros,
           coalesce(sum(coalesce(c.cost_micros, c.cost_ceiling_micros)), 0)::bigint AS cost_most_micros,
           count(*) FILTER (WHERE c.cost_micros IS NULL AND c.cost_ceiling_micros IS NULL) AS cost_unbounded
    FROM job JOIN ai_calls c ON c.job_id = job.id
    GROUP BY 1
)
SELECT grp AS "group", coalesce(jobs.jobs, 0) AS jobs, coalesce(jobs.accepted, 0) AS accepted,
       coalesce(jobs.first_try, 0) AS first_try, coalesce(jobs.attempts, 0) AS attempts,
       coalesce(jobs.retries, 0) AS retries, coalesce(calls.calls, 0) AS calls, coalesce(calls.unknown, 0) AS unknown,
       coalesce(calls.input_tokens, 0) AS input_tokens, coalesce(calls.cached_tokens, 0) AS cached_tokens,
       coalesce(calls.output_tokens, 0) AS output_tokens, coalesce(calls.reasoning_tokens, 0) AS reasoning_tokens,
       coalesce(calls.cost_known_micros, 0) AS cost_known_micros, coalesce(calls.cost_most_micros, 0) AS cost_most_micros,
       coalesce(calls.cost_unbounded, 0) AS cost_unbounded, coalesce(jobs.charged_micros, 0) AS charged_micros
FROM jobs FULL JOIN calls USING (grp)
ORDER BY 1;
