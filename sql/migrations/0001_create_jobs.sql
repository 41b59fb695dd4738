-- Tenants, keys, jobs, attempts, calls and events.
--
-- A job is one row that outlives tabs, processes and hosts. A claim mints `run_token`, opens an attempt and starts a
-- lease; each request to a provider is a call of that attempt. States are text with CHECKs, one CHECK per column that
-- depends on the state: a single condition joined by AND would let half-set rows pass.

CREATE TABLE ai_tenants (
    id          uuid PRIMARY KEY,
    name        text NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 200),
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE ai_api_keys (
    id          uuid PRIMARY KEY,
    tenant_id   uuid NOT NULL REFERENCES ai_tenants (id),
    prefix      text NOT NULL UNIQUE,                                -- finds the row; not a secret
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),    -- SHA-256 of the whole key, which is shown once
    scopes      text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['submit', 'read', 'operate']),
    name        text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz
);

-- tenant_id has no foreign key on purpose: checking it would lock the tenant's row in each insert, so that all creates
-- of one tenant met at one row. create.sql selects from ai_tenants instead, and tenants are never deleted.
CREATE TABLE ai_jobs (
    id                   uuid PRIMARY KEY,                           -- UUIDv7: sorts by creation
    tenant_id            uuid NOT NULL,
    idempotency_key      text NOT NULL CHECK (octet_length(idempotency_key) BETWEEN 1 AND 255),
    request_hash         bytea NOT NULL CHECK (octet_length(request_hash) = 33),
    kind                 text NOT NULL,
    provider             text,
    model                text,
    queue                text NOT NULL,
    priority             smallint NOT NULL CHECK (priority BETWEEN -100 AND 100),
    status               text NOT NULL CHECK (status IN ('queued', 'running', 'held', 'succeeded', 'failed', 'cancelled')),
    version              integer NOT NULL DEFAULT 1,                 -- raised by what the API's body shows, and only by that
    stay                 integer NOT NULL DEFAULT 1,                 -- an operator's retry of a terminal job begins the next
    payload              jsonb NOT NULL,
    metadata             jsonb NOT NULL DEFAULT '{}',
    user_id              text,
    trace_id             text,
    webhook_url          text,

    created_at           timestamptz NOT NULL DEFAULT now(),
    run_at               timestamptz NOT NULL,                       -- not before
    -- The place in line: run_at minus priority minutes, so that waiting outweighs priority in the end. NULL while run_at
    -- lies ahead: jobs in backoff then stand in an index of their own, and the claim never reads past them.
    order_at             timestamptz,
    expires_at           timestamptz,
    started_at           timestamptz,
    finished_at          timestamptz,

    max_attempts         smallint NOT NULL CHECK (max_attempts BETWEEN 1 AND 10),
    on_unknown           text NOT NULL CHECK (on_unknown IN ('retry', 'hold', 'fail')),
    max_unknown_retries  smallint NOT NULL CHECK (max_unknown_retries BETWEEN 0 AND 10),
    attempts             integer NOT NULL DEFAULT 0,                 -- claims; the number of the newest attempt
    attempts_counted     integer NOT NULL DEFAULT 0,                 -- those that count against max_attempts
    unknown_retries      integer NOT NULL DEFAULT 0,
    unsent_deaths        integer NOT NULL DEFAULT 0,                 -- workers that died before they sent anything

    run_token            uuid,                                       -- the fence: minted per claim, random, never reused
    worker_id            text,
    lease_until          timestamptz,                                -- in no index, so that a heartbeat is a HOT update
    cancel_requested_at  timestamptz,

    result               jsonb,
    error                jsonb,
    progress             jsonb,
    -- The number of the job's last event while no attempt runs. While one does, the number stands on the attempt: its row
    -- is narrow, so that numbering a piece of output never rewrites the job and its payload.
    event_seq            integer NOT NULL DEFAULT 1,
    reserved_micros      bigint NOT NULL DEFAULT 0 CHECK (reserved_micros >= 0),
    charged_micros       bigint NOT NULL DEFAULT 0 CHECK (charged_micros >= 0),

    CONSTRAINT ai_jobs_one_per_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT running_has_token CHECK ((status = 'running') = (run_token IS NOT NULL)),
    CONSTRAINT running_has_worker CHECK ((status = 'running') = (worker_id IS NOT NULL)),
    CONSTRAINT running_has_lease CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT terminal_has_finished_at CHECK ((status IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT queued_alone_is_in_line CHECK (order_at IS NULL OR status = 'queued'),
    CONSTRAINT result_only_of_success CHECK (result IS NULL OR status = 'succeeded'),
    CONSTRAINT failed_has_error CHECK (status <> 'failed' OR error IS NOT NULL),
    CONSTRAINT succeeded_has_no_error CHECK (status <> 'succeeded' OR error IS NULL),
    -- A cancel is a commitment: once asked for, the job can only go on to end as cancelled.
    CONSTRAINT cancel_is_kept CHECK (cancel_requested_at IS NULL OR status IN ('running', 'cancelled'))
) WITH (
    fillfactor = 80,                             -- room for heartbeats to stay on their page
    autovacuum_vacuum_scale_factor = 0.02,       -- finished claims leave dead versions at the head of the line's index
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX ai_jobs_in_line ON ai_jobs (queue, order_at, id) WHERE status = 'queued' AND order_at IS NOT NULL;
CREATE INDEX ai_jobs_delayed ON ai_jobs (run_at, id) WHERE status = 'queued' AND order_at IS NULL;
CREATE INDEX ai_jobs_running ON ai_jobs (worker_id, id) WHERE status = 'running';
CREATE INDEX ai_jobs_expiring ON ai_jobs (expires_at, id) WHERE expires_at IS NOT NULL AND status IN ('queued', 'held');
CREATE INDEX ai_jobs_newest ON ai_jobs (tenant_id, id DESC);

CREATE TABLE ai_attempts (
    job_id        uuid NOT NULL,
    number        integer NOT NULL CHECK (number >= 1),
    tenant_id     uuid NOT NULL,
    stay          integer NOT NULL,
    run_token     uuid NOT NULL,
    worker_id     text NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    outcome       text CHECK (outcome IN ('succeeded', 'failed', 'unknown', 'cancelled', 'released')),
    counted       boolean,                                           -- against max_attempts; decided when it ends
    accepted      boolean NOT NULL DEFAULT false,
    event_seq     integer NOT NULL,                                  -- of the job's last event, while this attempt runs
    error         jsonb,
    PRIMARY KEY (job_id, number),
    CONSTRAINT ended_has_outcome CHECK ((finished_at IS NOT NULL) = (outcome IS NOT NULL)),
    CONSTRAINT ended_is_counted_or_not CHECK ((finished_at IS NOT NULL) = (counted IS NOT NULL)),
    CONSTRAINT accepted_succeeded CHECK (NOT accepted OR outcome = 'succeeded')
) WITH (fillfactor = 80);

CREATE TABLE ai_calls (
    job_id                 uuid NOT NULL,
    attempt                integer NOT NULL,
    step                   text NOT NULL CHECK (length(step) BETWEEN 1 AND 100),
    tenant_id              uuid NOT NULL,
    provider               text NOT NULL,
    model                  text,
    stage                  text NOT NULL CHECK (stage IN ('prepared', 'sent', 'responding', 'finished')),
    outcome                text CHECK (outcome IN ('succeeded', 'failed', 'unknown', 'cancelled')),
    request_hash           bytea NOT NULL CHECK (octet_length(request_hash) = 32),   -- provider, model and body
    dedupe_key             text,
    sent_at                timestamptz,
    first_byte_at          timestamptz,
    finished_at            timestamptz,
    http_status            smallint,
    provider_request_id    text,
    provider_operation_id  text,
    input_tokens           bigint CHECK (input_tokens >= 0),
    cached_tokens          bigint CHECK (cached_tokens >= 0),
    output_tokens          bigint CHECK (output_tokens >= 0),
    reasoning_tokens       bigint CHECK (reasoning_tokens >= 0),
    cost_micros            bigint CHECK (cost_micros >= 0),          -- NULL is unknown, and unknown is never 0
    cost_ceiling_micros    bigint CHECK (cost_ceiling_micros >= 0),
    cost_basis             text NOT NULL DEFAULT 'unknown' CHECK (cost_basis IN ('reported', 'estimated', 'unknown', 'none')),
    accepted               boolean NOT NULL DEFAULT false,
    late                   boolean NOT NULL DEFAULT false,           -- the answer came after the attempt had lost its job
    provider_cancel        text NOT NULL DEFAULT 'not_sent'
                           CHECK (provider_cancel IN ('not_sent', 'unsupported', 'requested', 'confirmed', 'failed')),
    error                  jsonb,
    result                 jsonb,
    PRIMARY KEY (job_id, attempt, step),
    CONSTRAINT sent_has_time CHECK ((stage = 'prepared') = (sent_at IS NULL)),
    CONSTRAINT finished_has_time CHECK ((stage = 'finished') = (finished_at IS NOT NULL)),
    CONSTRAINT finished_has_outcome CHECK ((stage = 'finished') = (outcome IS NOT NULL)),
    CONSTRAINT result_of_success CHECK (result IS NULL OR outcome = 'succeeded'),
    CONSTRAINT known_cost_has_basis CHECK (cost_basis NOT IN ('reported', 'estimated') OR cost_micros IS NOT NULL),
    CONSTRAINT accepted_call_succeeded CHECK (NOT accepted OR outcome = 'succeeded')
) WITH (fillfactor = 80);

-- Partitioned by job_id, which for a UUIDv7 is by time of creation: retention drops a partition and never deletes row
-- by row. upkeep/ensure_event_partitions.sql makes partitions ahead of time; the default one takes what no other does.
CREATE TABLE ai_events (
    job_id      uuid NOT NULL,
    seq         integer NOT NULL CHECK (seq >= 1),
    tenant_id   uuid NOT NULL,
    type        text NOT NULL,
    data        jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, seq)
) PARTITION BY RANGE (job_id);

CREATE TABLE ai_events_default PARTITION OF ai_events DEFAULT;

-- Work that one process of the whole fleet does for all. The holder renews its hold each time it does the work; a hold
-- that ran out is seen by the claims of the others, so that nobody has to ask for it.
CREATE TABLE ai_duties (
    name        text PRIMARY KEY,
    holder      text,
    held_until  timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO ai_duties (name) VALUES ('reaper');
