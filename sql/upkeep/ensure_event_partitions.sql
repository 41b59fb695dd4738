-- Make the weekly partitions of ai_events for this week and the eight ahead of it.
-- Why a DO block: partition names and bounds are computed, which no plain statement can do. A partition is made as a
-- table of its own and then attached, which locks the parent less than CREATE TABLE ... PARTITION OF does.
-- Locks: SHARE UPDATE EXCLUSIVE on ai_events and ACCESS EXCLUSIVE on the (empty) default partition, only when a
-- partition is missing; gives up after a second and is run again later. A week that already has events in the default
-- partition (a clock far ahead) is left there, with a warning.
DO $$
DECLARE
    week date;
    partition text;
    lower_bound uuid;
    upper_bound uuid;
BEGIN
    SET LOCAL lock_timeout = '1s';
    FOR ahead IN 0..8 LOOP
        week := date_trunc('week', now() AT TIME ZONE 'UTC')::date + 7 * ahead;
        partition := 'ai_events_' || to_char(week, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL;
        lower_bound := (lpad(to_hex((extract(epoch FROM week::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
        upper_bound := (lpad(to_hex((extract(epoch FROM (week + 7)::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
        BEGIN
            EXECUTE format('CREATE TABLE %I (LIKE ai_events INCLUDING ALL)', partition);
            EXECUTE format('ALTER TABLE ai_events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition, lower_bound, upper_bound);
        EXCEPTION
            WHEN check_violation OR duplicate_table OR lock_not_available THEN
                RAISE WARNING 'partition % not made: %', partition, SQLERRM;
        END;
    END LOOP;
END
$$;
