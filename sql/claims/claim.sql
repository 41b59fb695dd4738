-- Claim up to `slots` jobs that are due: the one statement in which a job gets a new owner.
--
-- What a claim is. The job becomes running, its attempt n+1 is opened, and a random run_token is minted for it. The
-- token is the fence: each later write by the worker names it and touches no row once another token has taken over, so
-- that a worker that was paused, partitioned or presumed dead can never change what its successor does. Tokens are
-- random and not counted, because a counter may be handed out twice after a failover to an asynchronous standby. The
-- attempt is counted here and not at its end, so that a job that kills its workers still runs out.
--
-- Why SKIP LOCKED in a MATERIALIZED CTE. SKIP LOCKED lets claimers pass each other's rows instead of queueing behind
-- them. The rows must be picked once, before the UPDATE: written as `WHERE id IN (SELECT ... LIMIT 1 FOR UPDATE SKIP
-- LOCKED)`, a nested-loop plan runs the subquery again for each outer row and has been seen to take ten rows for one.
--
-- Why the recursive walk. `in_line` lists the queues that have a job in line with one index probe each, so that a
-- worker serves all queues without knowing their names, and each queue is then read as one index range. The queues come
-- in random order, which shares a worker between them; inside one, the order is `order_at` with id as the tie-break.
-- LATERAL with the outer LIMIT is lazy: a queue is read, and its rows are locked, only while slots are left.
--
-- Why it stays cheap. The partial index ai_jobs_in_line holds only jobs that are due: finished ones and those in backoff
-- are not in it (promote.sql moves the latter in when their time comes).
--
-- Why gates. Jobs of a provider that takes no work under our key are left in line, so that none of their attempts is
-- burnt; gates/take_probe.sql gives one worker leave to try with one job, which then asks for `only_provider`.
--
-- What else it returns. The first row is there even when nothing was claimed: `reaper_vacant` and `courier_vacant` say
-- that nobody has that duty, `next_due_seconds` when the next delayed job comes due, `troubled` which of our providers
-- have refused something, and `probe_due` one whose gate may be tried now, so that an idle worker needs no other query.
--
-- Locks: job (SKIP LOCKED, never waits); the new attempt.
-- One row with a NULL id: nothing was due, or every due job is being claimed by somebody else.
WITH RECURSIVE gates AS MATERIALIZED (
    SELECT g.provider, g.state, g.probe_at
    FROM ai_gates g
    JOIN unnest(%(providers)s::text[], %(key_fingerprints)s::text[]) AS ours (provider, key_fingerprint)
      ON ours.provider = g.provider AND ours.key_fingerprint = g.key_fingerprint
    WHERE g.state = 'shut' OR g.refusals > 0
), in_line AS (
    (SELECT queue FROM ai_jobs
     WHERE status = 'queued' AND order_at IS NOT NULL
     ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM ai_jobs j
            WHERE j.status = 'queued' AND j.order_at IS NOT NULL AND j.queue > in_line.queue
            ORDER BY j.queue LIMIT 1)
    FROM in_line
    WHERE in_line.queue IS NOT NULL
), shuffled AS MATERIALIZED (
    SELECT queue FROM in_line
    WHERE queue IS NOT NULL AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
    ORDER BY random()
), picked AS MATERIALIZED (
    SELECT due.id
    FROM shuffled
    CROSS JOIN LATERAL (
        SELECT j.id FROM ai_jobs j
        WHERE j.status = 'queued' AND j.queue = shuffled.queue AND j.order_at IS NOT NULL
          AND j.run_at <= now() AND (j.expires_at IS NULL OR j.expires_at > now())
          AND j.kind = ANY (%(kinds)s::text[])
          AND (j.provider = %(only_provider)s::text
               OR (%(only_provider)s::text IS NULL
                   AND (j.provider IS NULL OR j.provider NOT IN (SELECT provider FROM gates WHERE state = 'shut'))))
        ORDER BY j.order_at, j.id
        LIMIT %(slots)s::integer
        FOR UPDATE SKIP LOCKED
    ) due
    LIMIT %(slots)s::integer
), claimed AS (
    UPDATE ai_jobs j
    SET status = 'running', version = j.version + 1, attempts = j.attempts + 1, order_at = NULL,
        run_token = gen_random_uuid(), worker_id = %(worker_id)s::text,
        lease_until = now() + %(lease_seconds)s::float8 * interval '1 second',
        started_at = coalesce(j.started_at, now()), event_seq = j.event_seq + 1
    FROM picked
    WHERE j.id = picked.id
    RETURNING j.*
), attempt AS (
    INSERT INTO ai_attempts (job_id, number, tenant_id, stay, run_token, worker_id, event_seq)
    SELECT id, attempts, tenant_id, stay, run_token, worker_id, event_seq FROM claimed
), event AS (
    INSERT INTO ai_events (job_id, seq, tenant_id, type, data)
    SELECT id, event_seq, tenant_id, 'job.started', jsonb_build_object('attempt', attempts) FROM claimed
)
SELECT fleet.reaper_vacant, fleet.courier_vacant, fleet.next_due_seconds, fleet.troubled, fleet.probe_due,
       c.id, c.tenant_id, c.run_token, c.kind, c.provider, c.model, c.queue, c.payload, c.trace_id, c.attempts,
       c.max_attempts, c.attempts_counted, c.on_unknown, c.unknown_retries, c.max_unknown_retries, c.unsent_deaths,
       extract(epoch FROM c.expires_at - now())::float8 AS expires_in_seconds,
       extract(epoch FROM now() - greatest(c.run_at, c.created_at))::float8 AS waited_seconds,
       extract(epoch FROM now() - c.created_at)::float8 AS age_seconds
FROM (
    SELECT coalesce((SELECT held_until < now() FROM ai_duties WHERE name = 'reaper'), false) AS reaper_vacant,
           coalesce((SELECT held_until < now() FROM ai_duties WHERE name = 'courier'), false) AS courier_vacant,
           extract(epoch FROM (SELECT min(run_at) FROM ai_jobs WHERE status = 'queued' AND order_at IS NULL) - now())::float8
               AS next_due_seconds,
           ARRAY(SELECT provider FROM gates) AS troubled,
           (SELECT provider FROM gates WHERE state = 'shut' AND probe_at <= now() ORDER BY probe_at LIMIT 1) AS probe_due
) fleet
LEFT JOIN claimed c ON true;
