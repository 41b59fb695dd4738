-- Webhooks: what is to be told to whom, whom each tenant's receivers know us by, and which receivers want no more.

-- A row per end of a job that asked for it, written by the statement that ends the job. It is claimed by moving due_at
-- ahead under a new token: whoever dies with it loses it by the clock.
CREATE TABLE ai_webhook_deliveries (
    id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),        -- the webhook-id, the same in all tries
    tenant_id     uuid NOT NULL,
    job_id        uuid NOT NULL,
    stay          integer NOT NULL,
    type          text NOT NULL CHECK (type IN ('job.succeeded', 'job.failed', 'job.cancelled')),
    url           text NOT NULL,
    status        text NOT NULL CHECK (status IN ('pending', 'delivered', 'failed', 'disabled')),
    tries         integer NOT NULL DEFAULT 0 CHECK (tries >= 0),
    due_at        timestamptz NOT NULL DEFAULT now(),
    token         uuid,                                              -- of the try under way
    last_status   integer,
    last_error    text,
    created_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    CONSTRAINT webhooks_once_per_end UNIQUE (job_id, stay),
    CONSTRAINT only_pending_is_tried CHECK (token IS NULL OR status = 'pending'),
    CONSTRAINT pending_has_not_ended CHECK ((status = 'pending') = (ended_at IS NULL))
) WITH (fillfactor = 80);

-- By receiver, so that one with a long queue is passed by with one probe of the index.
CREATE INDEX ai_webhook_deliveries_due ON ai_webhook_deliveries (tenant_id, url, due_at, id) WHERE status = 'pending';
CREATE INDEX ai_webhook_deliveries_newest ON ai_webhook_deliveries (tenant_id, created_at DESC);

CREATE TABLE ai_webhook_secrets (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id   uuid NOT NULL REFERENCES ai_tenants (id),
    secret      text NOT NULL CHECK (secret LIKE 'whsec\_%'),
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz                                          -- of one that was replaced: it signs until then
);
CREATE UNIQUE INDEX ai_webhook_secrets_current ON ai_webhook_secrets (tenant_id) WHERE expires_at IS NULL;

-- A receiver that answered 410 Gone.
CREATE TABLE ai_webhook_disabled (
    tenant_id    uuid NOT NULL REFERENCES ai_tenants (id),
    url          text NOT NULL,
    disabled_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, url)
);
