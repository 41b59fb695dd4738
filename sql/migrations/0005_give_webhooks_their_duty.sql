-- Who delivers webhooks, and what counts as one receiver.

-- Not the reaper: that one waits after a start, so that the living settle first, and a delivery need not.
INSERT INTO ai_duties (name) VALUES ('courier');

-- Scheme, host and port: what is slow or broken as one, whatever the path. By it, so that one with a long queue is passed
-- by with one probe of the index.
ALTER TABLE ai_webhook_deliveries
    ADD COLUMN receiver text NOT NULL
        GENERATED ALWAYS AS (lower(coalesce(substring(url FROM '^[^/]*//[^/?#]*'), ''))) STORED;
DROP INDEX ai_webhook_deliveries_due;
CREATE INDEX ai_webhook_deliveries_due ON ai_webhook_deliveries (tenant_id, receiver, due_at, id) WHERE status = 'pending';
CREATE INDEX ai_webhook_deliveries_under_way ON ai_webhook_deliveries (tenant_id, receiver) WHERE token IS NOT NULL;
