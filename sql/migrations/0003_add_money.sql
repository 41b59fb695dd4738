-- Money: what tenants may spend and are charged, and what providers bill. Two books that never mix: the ledger has what
-- a tenant is charged for accepted results, the calls have what was paid for. Everything in integer micro-units.

ALTER TABLE ai_tenants
    ADD COLUMN budgeted boolean NOT NULL DEFAULT false,    -- a tenant without a budget has no balance to lock
    ADD COLUMN granted_micros bigint NOT NULL DEFAULT 0,
    ADD COLUMN reserved_micros bigint NOT NULL DEFAULT 0 CHECK (reserved_micros >= 0),
    ADD COLUMN charged_micros bigint NOT NULL DEFAULT 0 CHECK (charged_micros >= 0),
    -- What admits a job: a reservation that does not fit fails its whole statement, and the job with it.
    ADD CONSTRAINT budget_is_kept CHECK (NOT budgeted OR reserved_micros + charged_micros <= granted_micros);
ALTER TABLE ai_tenants SET (fillfactor = 50);

-- What a job's result costs its tenant, as it was when the reservation was made.
ALTER TABLE ai_jobs
    ADD COLUMN tariff text NOT NULL DEFAULT 'none' CHECK (tariff IN ('none', 'fixed', 'metered')),
    ADD COLUMN price_micros bigint CHECK (price_micros >= 0),
    ADD COLUMN margin_percent integer NOT NULL DEFAULT 0 CHECK (margin_percent BETWEEN 0 AND 10000),
    ADD COLUMN on_cancel text NOT NULL DEFAULT 'release' CHECK (on_cancel IN ('release', 'charge_delivered')),
    ADD CONSTRAINT fixed_has_price CHECK ((tariff = 'fixed') = (price_micros IS NOT NULL)),
    ADD CONSTRAINT charge_is_reserved CHECK (charged_micros <= reserved_micros);

-- Append-only. A grant and an adjustment belong to the tenant alone; the other entries to a stay of a job, once each.
CREATE TABLE ai_ledger (
    tenant_id      uuid NOT NULL,
    job_id         uuid,
    stay           integer,
    entry          text NOT NULL CHECK (entry IN ('grant', 'reserve', 'charge', 'release', 'adjust')),
    amount_micros  bigint NOT NULL,
    reason         text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ai_ledger_once UNIQUE (job_id, stay, entry),
    CONSTRAINT of_a_job CHECK ((entry IN ('reserve', 'charge', 'release')) = (job_id IS NOT NULL)),
    CONSTRAINT of_a_stay CHECK ((job_id IS NULL) = (stay IS NULL)),
    CONSTRAINT only_an_adjustment_is_negative CHECK (amount_micros >= 0 OR entry = 'adjust'),
    CONSTRAINT an_adjustment_has_a_reason CHECK (entry <> 'adjust' OR length(reason) > 0)
);

INSERT INTO ai_ledger (tenant_id, job_id, stay, entry, amount_micros)
SELECT tenant_id, id, stay, 'reserve', 0 FROM ai_jobs
UNION ALL
SELECT tenant_id, id, stay, 'release', 0 FROM ai_jobs WHERE finished_at IS NOT NULL;

-- What providers ask: micro-units per million tokens and per request. A call is priced by what was in force as it was
-- sent. `cached`, `cache_write` and `reasoning` NULL: as `input`, `input` and `output`.
CREATE TABLE ai_prices (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider           text NOT NULL,
    model              text NOT NULL,
    valid_from         timestamptz NOT NULL,
    valid_until        timestamptz CHECK (valid_until > valid_from),
    input_micros       bigint NOT NULL CHECK (input_micros >= 0),
    cached_micros      bigint CHECK (cached_micros >= 0),
    cache_write_micros bigint CHECK (cache_write_micros >= 0),
    output_micros      bigint NOT NULL CHECK (output_micros >= 0),
    reasoning_micros   bigint CHECK (reasoning_micros >= 0),
    request_micros     bigint NOT NULL DEFAULT 0 CHECK (request_micros >= 0),
    max_output_tokens  bigint CHECK (max_output_tokens > 0),
    created_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ai_prices_one_at_a_time UNIQUE (provider, model, valid_from)
);

ALTER TABLE ai_calls
    ADD COLUMN price_id bigint,                            -- what was in force as it was sent
    ADD COLUMN cache_write_tokens bigint CHECK (cache_write_tokens >= 0);

-- What did no work cost nothing, and said so without a number until now.
UPDATE ai_calls SET cost_micros = 0 WHERE cost_basis = 'none' AND cost_micros IS NULL;
