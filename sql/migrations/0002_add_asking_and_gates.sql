-- What it takes not to pay twice: how a lost call can be asked about, which stored answers were offered or refused, and
-- the gates that keep jobs from a provider that takes none.

ALTER TABLE ai_calls
    -- How the provider can be asked what became of this call; see providers/base.py. By `operation` only once an id is
    -- stored in provider_operation_id, by `key` and by `repeat` with dedupe_key.
    ADD COLUMN ask_by text CHECK (ask_by IN ('operation', 'key', 'repeat')),
    ADD COLUMN asked_at timestamptz,                       -- the provider was asked and could not say
    ADD COLUMN rejected boolean NOT NULL DEFAULT false,    -- a handler refused the answer: never used again
    ADD COLUMN offered boolean NOT NULL DEFAULT false,     -- a later attempt was given the answer, or made for it
    ADD CONSTRAINT asked_by_key_has_key CHECK (ask_by IS NULL OR ask_by = 'operation' OR dedupe_key IS NOT NULL);

-- Calls whose outcome might still be learnt: by asking the provider, or by repeating what it does only once. Nobody has
-- asked in vain, and no later attempt has sent the same request again.
CREATE VIEW ai_calls_left_open AS
SELECT c.job_id, c.attempt, c.step
FROM ai_calls c
WHERE c.outcome = 'unknown' AND c.asked_at IS NULL
  AND (c.ask_by IN ('key', 'repeat') OR (c.ask_by = 'operation' AND c.provider_operation_id IS NOT NULL))
  AND NOT EXISTS (
      SELECT FROM ai_calls later
      WHERE later.job_id = c.job_id AND later.attempt > c.attempt AND later.step = c.step
        AND later.request_hash = c.request_hash
  );

-- Calls that a provider may still work on, and that it has not been told to stop.
CREATE INDEX ai_calls_to_stop ON ai_calls (job_id)
    WHERE outcome = 'unknown' AND ask_by = 'operation' AND provider_operation_id IS NOT NULL
        AND provider_cancel = 'not_sent';

-- A person may accept the stored answer of an attempt that itself ended in another way.
ALTER TABLE ai_attempts DROP CONSTRAINT accepted_succeeded;

-- A row per provider and key that has refused something. While it is shut, jobs of that provider are not claimed, except
-- for one probe at a time.
CREATE TABLE ai_gates (
    provider         text NOT NULL,
    key_fingerprint  text NOT NULL,                        -- of the provider's key: not a secret
    state            text NOT NULL CHECK (state IN ('open', 'shut')),
    reason           text NOT NULL CHECK (reason IN ('account', 'overload')),
    code             text NOT NULL,                        -- of the last refusal
    refusals         integer NOT NULL CHECK (refusals >= 0),   -- in a row, over all workers
    shut_at          timestamptz,
    probe_at         timestamptz,                          -- when one job may try
    probe_seconds    integer NOT NULL,                    -- from that probe to the next, doubling
    PRIMARY KEY (provider, key_fingerprint),
    CONSTRAINT shut_has_time CHECK ((state = 'shut') = (shut_at IS NOT NULL)),
    CONSTRAINT shut_has_probe CHECK ((state = 'shut') = (probe_at IS NOT NULL))
) WITH (fillfactor = 50);
