-- Partitions by time, for tables that are partitioned by ranges of Snowflake IDs: those
-- of the next periods are made by the clock, old ones are detached or dropped.  What
-- each part is good for is in partitions.md.
--
--   CREATE TABLE log (id snowflake PRIMARY KEY DEFAULT snowflake_next(), line text) PARTITION BY RANGE (id);
--   \i partitions.sql
--   INSERT INTO by_time.tables (parent, period, time_zone) VALUES ('log', 'month', 'Europe/Berlin');
--   SELECT * FROM by_time.due();         -- what there is to do; changes nothing
--   CALL by_time.maintain();             -- does it; from now on by cron or pg_cron
--
-- To be run by the owner of the tables, who need not be a superuser, but needs the
-- privilege CREATE on the database and on the schemas of the tables.  The extension has
-- to be in the search_path now; later it does not matter.  The schema is called by_time
-- in this file, and may be called otherwise: replace that word.  Grant nothing in it to
-- others: who writes to its tables decides what is dropped.

CREATE SCHEMA by_time;
COMMENT ON SCHEMA by_time IS 'partitions by time: made ahead, detached or dropped by age';

CREATE TABLE by_time.tables (
    parent       regclass PRIMARY KEY,
    period       text NOT NULL CHECK (period IN ('hour', 'day', 'week', 'month', 'year')),
    time_zone    text NOT NULL CHECK (timestamptz '2000-01-01 UTC' AT TIME ZONE time_zone IS NOT NULL),
    ahead        integer NOT NULL DEFAULT 4 CHECK (ahead BETWEEN 1 AND 10000),
    since        timestamptz CHECK (isfinite(since)),
    keep         interval CHECK (keep > interval '0'),
    old          text NOT NULL DEFAULT 'detach' CHECK (old IN ('detach', 'drop')),
    default_rows text NOT NULL DEFAULT 'report' CHECK (default_rows IN ('report', 'move')),
    layout       text
);
COMMENT ON TABLE by_time.tables IS 'the tables that are looked after';
COMMENT ON COLUMN by_time.tables.parent IS 'a table partitioned by ranges of one column of type snowflake or bigint';
COMMENT ON COLUMN by_time.tables.period IS 'the time of one partition: hour, day, week, month or year';
COMMENT ON COLUMN by_time.tables.time_zone IS 'where days, weeks, months and years begin at midnight; hours are those of UTC';
COMMENT ON COLUMN by_time.tables.ahead IS 'how many periods after the current one have a partition';
COMMENT ON COLUMN by_time.tables.since IS 'the first period that has a partition; null: the current one';
COMMENT ON COLUMN by_time.tables.keep IS 'a partition is old when all of it is older than that; null: never';
COMMENT ON COLUMN by_time.tables.old IS 'what is done with an old partition: detach (it stays, as a table of its own) or drop';
COMMENT ON COLUMN by_time.tables.default_rows IS
    'what is done with rows of the default partition that have a period: report or move';
COMMENT ON COLUMN by_time.tables.layout IS 'the layout of the IDs; null: the server''s';

-- Dropping takes two steps, and a run that ends between them is completed by the next one.
CREATE TABLE by_time.dropping (
    partition regclass PRIMARY KEY,
    parent    regclass NOT NULL REFERENCES by_time.tables ON UPDATE CASCADE ON DELETE CASCADE
);
COMMENT ON TABLE by_time.dropping IS 'old partitions that are to be dropped as soon as they are detached';

-- The functions of the extension, found now and for good.
CREATE FUNCTION by_time.bound(at timestamptz, layout text) RETURNS bigint STABLE
    RETURN CASE WHEN layout IS NULL THEN snowflake_lower_bound(at) ELSE snowflake_lower_bound(at, layout) END;
COMMENT ON FUNCTION by_time.bound(timestamptz, text) IS 'the smallest ID at or after an instant';

CREATE FUNCTION by_time.time_of(id bigint, layout text) RETURNS timestamptz STABLE
    RETURN CASE WHEN layout IS NULL THEN snowflake_timestamp(id) ELSE snowflake_timestamp(id, layout) END;
COMMENT ON FUNCTION by_time.time_of(bigint, text) IS 'the time of an ID';

-- Counted in local time: a day has 23 or 25 hours where the clocks change.  An hour of
-- local time can come twice, so hours are counted in UTC.
CREATE FUNCTION by_time.first_instant(local timestamp, time_zone text)
    RETURNS timestamptz STABLE
    RETURN CASE WHEN (local AT TIME ZONE time_zone - interval '1 hour') AT TIME ZONE time_zone = local
        THEN local AT TIME ZONE time_zone - interval '1 hour' ELSE local AT TIME ZONE time_zone END;
COMMENT ON FUNCTION by_time.first_instant(timestamp, text) IS
    'when a local time comes, for the first time where it comes twice, as midnight does in Havana once a year';

CREATE FUNCTION by_time.period_start(at timestamptz, period text, time_zone text, n integer DEFAULT 0)
    RETURNS timestamptz STABLE
    RETURN CASE WHEN period = 'hour' THEN date_trunc('hour', at, 'UTC') + n * interval '1 hour'
        ELSE by_time.first_instant(date_trunc(period, at AT TIME ZONE time_zone) + n * ('1 ' || period)::interval, time_zone) END;
COMMENT ON FUNCTION by_time.period_start(timestamptz, text, text, integer) IS
    'the beginning of the period in which an instant is, or of the nth one after that';

CREATE FUNCTION by_time.full_name(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', n.nspname, c.relname)
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = relation
$$;
COMMENT ON FUNCTION by_time.full_name(regclass) IS 'the name of a relation, with its schema';

CREATE FUNCTION by_time.existing(parent regclass)
    RETURNS TABLE (partition regclass, ids int8range, is_default boolean, is_pending boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass, int8range(b.bounds[1]::bigint, b.bounds[2]::bigint), b.bounds IS NULL, i.inhdetachpending
      FROM pg_inherits i
      JOIN pg_class c ON c.oid = i.inhrelid
     CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid),
            '^FOR VALUES FROM \((?:''?(-?\d+)''?|MINVALUE)\) TO \((?:''?(-?\d+)''?|MAXVALUE)\)$') b (bounds)
     WHERE i.inhparent = parent
$$;
COMMENT ON FUNCTION by_time.existing(regclass) IS 'the partitions of a table, and the IDs of each';

-- The column that a table is partitioned by.
CREATE FUNCTION by_time.key_of(parent regclass) RETURNS name
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE types (attname, oid) AS (
        SELECT a.attname, a.atttypid
          FROM pg_partitioned_table p
          JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
         WHERE p.partrelid = parent AND p.partstrat = 'r' AND p.partnatts = 1
        UNION ALL
        SELECT t.attname, d.typbasetype
          FROM types t
          JOIN pg_type d USING (oid)
         WHERE d.typtype = 'd')
    SELECT t.attname
      FROM types t
     WHERE t.oid = 'bigint'::regtype
        OR EXISTS (
            SELECT FROM pg_type y
              JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = y.oid AND d.deptype = 'e'
              JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
             WHERE y.oid = t.oid AND y.typname = 'snowflake' AND e.extname = 'snowflake')
$$;
COMMENT ON FUNCTION by_time.key_of(regclass) IS
    'the column by whose ranges a table is partitioned, if it is one of type snowflake or bigint';

-- log_2026_12 and so on.  Of a period whose beginning is in another partition, the rest
-- is called by the minute in which it begins.
CREATE FUNCTION by_time.name_of(parent regclass, start timestamptz, period text, time_zone text, is_rest boolean)
    RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stem   text := (SELECT relname FROM pg_class WHERE oid = parent);
    suffix text := to_char(start AT TIME ZONE CASE period WHEN 'hour' THEN 'UTC' ELSE time_zone END,
        CASE CASE WHEN is_rest THEN 'minute' ELSE period END
            WHEN 'minute' THEN '_YYYY_MM_DD_HH24MI'
            WHEN 'hour' THEN '_YYYY_MM_DD_HH24'
            WHEN 'day' THEN '_YYYY_MM_DD'
            WHEN 'week' THEN '_IYYY_"w"IW'
            WHEN 'month' THEN '_YYYY_MM'
            ELSE '_YYYY' END);
BEGIN
    -- of a name that is too long, the server would cut off the end
    WHILE octet_length(stem || suffix) > 63 LOOP
        stem := left(stem, -1);
    END LOOP;
    RETURN stem || suffix;
END $$;
COMMENT ON FUNCTION by_time.name_of(regclass, timestamptz, text, text, boolean) IS 'the name of a partition to be made';

-- The table is made by itself and attached when it is complete, since CREATE TABLE ...
-- PARTITION OF would lock out those who read and write the others.  ATTACH makes the
-- indexes, and takes care of identity columns.
CREATE FUNCTION by_time.statement_to_create(parent regclass, partition text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('CREATE TABLE %I.%I (LIKE %I.%I INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY)%s%s',
                n.nspname, partition, n.nspname, c.relname, ' USING ' || quote_ident(a.amname),
                ' TABLESPACE ' || quote_ident(s.spcname))
            || CASE c.relreplident
                   WHEN 'f' THEN format('; ALTER TABLE %I.%I REPLICA IDENTITY FULL', n.nspname, partition)
                   WHEN 'n' THEN format('; ALTER TABLE %I.%I REPLICA IDENTITY NOTHING', n.nspname, partition)
                   ELSE '' END
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
      LEFT JOIN pg_am a ON a.oid = c.relam
      LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
     WHERE c.oid = parent
$$;
COMMENT ON FUNCTION by_time.statement_to_create(regclass, text) IS 'CREATE TABLE for a partition, not attached yet';

CREATE FUNCTION by_time.statement_to_attach(parent regclass, partition text, lower bigint, upper bigint) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%L) TO (%L)',
                n.nspname, c.relname, n.nspname, partition, lower, upper)
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = parent
$$;
COMMENT ON FUNCTION by_time.statement_to_attach(regclass, text, bigint, bigint) IS 'ALTER TABLE that attaches a partition';

-- Make a partition for IDs of which the default partition has rows, and move them.  They
-- leave by DELETE and come back by INSERT into the table, so that triggers and
-- publications see both.
CREATE FUNCTION by_time.move(parent regclass, partition text, lower bigint, upper bigint) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rest    regclass := (SELECT e.partition FROM by_time.existing(parent) e WHERE e.is_default);
    key     name := by_time.key_of(parent);
    columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = parent AND attnum > 0 AND NOT attisdropped AND attgenerated = '');
    removed bigint;
    added   bigint;
BEGIN
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', by_time.full_name(parent));
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', by_time.full_name(rest));
    -- ON DELETE CASCADE would take the rows that reference them along
    IF EXISTS (SELECT FROM pg_constraint c WHERE c.contype = 'f' AND c.confrelid = rest) THEN
        RAISE EXCEPTION 'cannot move rows of %, since foreign keys reference it', rest
            USING ERRCODE = 'feature_not_supported';
    END IF;
    EXECUTE format('CREATE TEMPORARY TABLE by_time_moved ON COMMIT DROP AS SELECT %s FROM %s LIMIT 0',
        columns, by_time.full_name(rest));
    EXECUTE format('WITH moved AS (DELETE FROM %s WHERE %2$I::bigint >= $1 AND %2$I::bigint < $2 RETURNING %3$s)'
        ' INSERT INTO pg_temp.by_time_moved SELECT %3$s FROM moved', by_time.full_name(rest), key, columns)
        USING lower, upper;
    GET DIAGNOSTICS removed = ROW_COUNT;
    EXECUTE by_time.statement_to_create(parent, partition);
    EXECUTE by_time.statement_to_attach(parent, partition, lower, upper);
    EXECUTE format('INSERT INTO %s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM pg_temp.by_time_moved',
        by_time.full_name(parent), columns);
    GET DIAGNOSTICS added = ROW_COUNT;
    DROP TABLE pg_temp.by_time_moved;
    IF added <> removed THEN
        RAISE EXCEPTION 'of % rows of % only % were moved', removed, rest, added
            USING ERRCODE = 'triggered_action_exception', HINT = 'Look for triggers that leave rows out.';
    END IF;
    RETURN added;
END $$;
COMMENT ON FUNCTION by_time.move(regclass, text, bigint, bigint) IS
    'make a partition, and move the rows of the default partition into it that belong there';

CREATE FUNCTION by_time.due(at timestamptz DEFAULT now(), in_transaction boolean DEFAULT false, only_table regclass DEFAULT NULL)
    RETURNS TABLE (parent regclass, what text, statement text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    t         by_time.tables;
    owner     oid;
    key       name;
    rest      regclass;             -- the default partition
    taken     int8multirange;       -- the IDs that have another one
    oldest    timestamptz;          -- what is older is not kept
    old_ids   bigint;
    starts    timestamptz[];
    start     timestamptz;
    next_id   bigint;
    first     timestamptz;
    last      timestamptz;
    n         integer;
    p         record;
    gap       int8range;
    child     text;
    count     bigint;
BEGIN
    FOR t IN SELECT * FROM by_time.tables x WHERE only_table IS NULL OR x.parent = only_table ORDER BY x.parent::oid LOOP
        parent := t.parent;
        statement := NULL;
        owner := (SELECT c.relowner FROM pg_class c WHERE c.oid = t.parent);
        key := by_time.key_of(t.parent);
        what := CASE
            WHEN owner IS NULL THEN 'the table does not exist any more'
            -- its triggers and expressions would be run with the rights of somebody else
            WHEN pg_get_userbyid(owner) <> current_user THEN format('belongs to %s: only that role can look after it', owner::regrole)
            WHEN key IS NULL THEN 'is not partitioned by ranges of one column of type snowflake or bigint' END;
        IF what IS NOT NULL THEN
            RETURN NEXT;
            CONTINUE;
        END IF;

        -- What was not detached to the end is in the way of everything else.
        FOR p IN SELECT e.partition FROM by_time.existing(t.parent) e WHERE e.is_pending LOOP
            what := format('complete the detachment of %s', p.partition);
            statement := format('ALTER TABLE %s DETACH PARTITION %s FINALIZE',
                by_time.full_name(t.parent), by_time.full_name(p.partition));
            RETURN NEXT;
        END LOOP;

        SELECT max(e.partition::oid) FILTER (WHERE e.is_default),
               coalesce(range_agg(e.ids) FILTER (WHERE NOT e.is_default), '{}')
          INTO rest, taken
          FROM by_time.existing(t.parent) e;
        BEGIN
            oldest := (at AT TIME ZONE t.time_zone - t.keep) AT TIME ZONE t.time_zone;
        EXCEPTION WHEN datetime_field_overflow THEN
            -- that is before all times, so nothing is old
            oldest := '-infinity';
        END;
        BEGIN
            old_ids := by_time.bound(oldest, t.layout);
        EXCEPTION WHEN datetime_field_overflow THEN
            -- the layout ended before that: all IDs are old
            old_ids := 9223372036854775807;
        WHEN data_exception THEN
            what := format('cannot tell what is old: %s', SQLERRM);
            statement := NULL;
            RETURN NEXT;
            CONTINUE;
        END;

        -- The periods that are to have a partition, and those of rows in the default partition
        starts := '{}';
        first := CASE WHEN t.since < at THEN greatest(t.since, oldest) ELSE at END;
        last := by_time.period_start(at, t.period, t.time_zone, t.ahead);
        n := 0;
        LOOP
            start := by_time.period_start(first, t.period, t.time_zone, n);
            EXIT WHEN start > last;
            starts := starts || start;
            n := n + 1;
        END LOOP;
        next_id := 0;
        WHILE rest IS NOT NULL LOOP
            EXECUTE format('SELECT min(%1$I::bigint) FROM %2$s WHERE %1$I::bigint >= $1', key, by_time.full_name(rest))
               INTO next_id USING next_id;
            EXIT WHEN next_id IS NULL;
            BEGIN
                start := by_time.period_start(by_time.time_of(next_id, t.layout), t.period, t.time_zone);
                next_id := by_time.bound(by_time.period_start(start, t.period, t.time_zone, 1), t.layout);
            EXCEPTION WHEN numeric_value_out_of_range OR datetime_field_overflow THEN
                what := format('%s has rows from ID %s on, which are of no period of the layout', rest, next_id);
                statement := NULL;
                RETURN NEXT;
                EXIT;
            END;
            -- what is not kept stays where it is: a partition of its own would be dropped
            CONTINUE WHEN next_id <= old_ids;
            starts := starts || start;
        END LOOP;

        -- A period can be without IDs: islands have skipped a day
        FOR p IN
            SELECT DISTINCT s.start, NULL::bigint AS lower, NULL::bigint AS upper FROM unnest(starts) AS s (start) ORDER BY s.start
        LOOP
            BEGIN
                p.lower := by_time.bound(p.start, t.layout);
            EXCEPTION WHEN data_exception THEN
                what := format('cannot make a partition from %s: %s', p.start, SQLERRM);
                statement := NULL;
                RETURN NEXT;
                EXIT;
            END;
            BEGIN
                p.upper := by_time.bound(by_time.period_start(p.start, t.period, t.time_zone, 1), t.layout);
            EXCEPTION WHEN datetime_field_overflow THEN
                -- the layout ends before the period does; its very last ID may have no partition
                p.upper := 9223372036854775807;
            END;
            FOR gap IN SELECT unnest(int8multirange(int8range(p.lower, p.upper)) - taken) LOOP
                start := CASE WHEN lower(gap) = p.lower THEN p.start ELSE by_time.time_of(lower(gap), t.layout) END;
                child := by_time.name_of(t.parent, start, t.period, t.time_zone, lower(gap) > p.lower);
                statement := NULL;
                count := 0;
                IF rest IS NOT NULL THEN
                    EXECUTE format('SELECT count(*) FROM %1$s WHERE %2$I::bigint >= $1 AND %2$I::bigint < $2',
                        by_time.full_name(rest), key) INTO count USING lower(gap), upper(gap);
                END IF;
                IF count = 0 THEN
                    what := format('make %s, from %s', child, start);
                    statement := by_time.statement_to_create(t.parent, child) || '; '
                        || by_time.statement_to_attach(t.parent, child, lower(gap), upper(gap));
                ELSIF t.default_rows = 'report' THEN
                    what := format('cannot make %s, from %s: %s has %s rows of that time', child, start, rest, count);
                ELSIF EXISTS (SELECT FROM pg_constraint c WHERE c.contype = 'f' AND c.confrelid = rest) THEN
                    what := format('cannot make %s, from %s: %s has %s rows of that time, which foreign keys reference',
                        child, start, rest, count);
                ELSE
                    what := format('make %s, from %s, with %s rows of %s', child, start, count, rest);
                    statement := format('SELECT by_time.move(%L, %L, %s, %s)',
                        by_time.full_name(t.parent), child, lower(gap), upper(gap));
                END IF;
                RETURN NEXT;
            END LOOP;
        END LOOP;

        FOR p IN
            SELECT e.partition, d.partition IS NOT NULL AS is_noted
              FROM by_time.existing(t.parent) e
              LEFT JOIN by_time.dropping d USING (partition)
             WHERE NOT e.is_default AND NOT e.is_pending AND upper(e.ids) <= old_ids
             ORDER BY e.ids
        LOOP
            IF t.old = 'drop' AND NOT p.is_noted THEN
                what := format('note that %s is to be dropped', p.partition);
                statement := format('INSERT INTO by_time.dropping VALUES (%L, %L)',
                    by_time.full_name(p.partition), by_time.full_name(t.parent));
                RETURN NEXT;
            END IF;
            -- PostgreSQL does not do it concurrently beside a default partition
            what := format('detach %s', p.partition);
            statement := format('ALTER TABLE %s DETACH PARTITION %s%s', by_time.full_name(t.parent),
                by_time.full_name(p.partition), CASE WHEN NOT in_transaction AND rest IS NULL THEN ' CONCURRENTLY' ELSE '' END);
            RETURN NEXT;
        END LOOP;

        FOR p IN
            SELECT d.partition, c.oid IS NOT NULL AND NOT c.relispartition AS is_detached,
                   coalesce(e.is_pending OR upper(e.ids) <= old_ids, false) AS is_old
              FROM by_time.dropping d
              LEFT JOIN pg_class c ON c.oid = d.partition
              LEFT JOIN by_time.existing(t.parent) e ON e.partition = d.partition
             WHERE d.parent = t.parent
             ORDER BY c.relname
        LOOP
            statement := format('DELETE FROM by_time.dropping WHERE partition::oid = %s', p.partition::oid);
            IF t.old = 'drop' AND p.is_detached THEN
                what := format('drop %s', p.partition);
                statement := format('DROP TABLE %s; ', by_time.full_name(p.partition)) || statement;
                RETURN NEXT;
            ELSIF t.old <> 'drop' OR NOT p.is_old THEN
                what := format('forget that %s was to be dropped', p.partition);
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION by_time.due(timestamptz, boolean, regclass) IS
    'what there is to do, and the statements that do it; without a statement: what somebody has to look at';

-- Each statement is a transaction of its own, and waits for locks but a moment, since
-- those who come later wait behind it.  What cannot be done does not keep the rest from
-- being done.
CREATE PROCEDURE by_time.maintain(lock_timeout text DEFAULT '200ms', tries integer DEFAULT 10,
    pause interval DEFAULT '1 second', at timestamptz DEFAULT NULL)
    LANGUAGE plpgsql AS $$
DECLARE
    -- before the search_path is set, types are looked up in that of the caller
    looked_at pg_catalog.regclass;
    todo      pg_catalog.text[];
    tried     pg_catalog.text[];
    errors    pg_catalog.text[];
    step      pg_catalog.text;
    error     pg_catalog.text;
    is_lock   pg_catalog.bool;
    problem   pg_catalog.text;
    problems  pg_catalog.int4 := 0;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR looked_at IN SELECT x.parent FROM by_time.tables x ORDER BY x.parent::oid LOOP
        tried := '{}';
        errors := '{}';
        LOOP
            SET LOCAL search_path = pg_catalog, pg_temp;
            todo := ARRAY(SELECT d.statement FROM by_time.due(coalesce(at, now()), true, looked_at) d
                           WHERE d.statement IS NOT NULL AND d.statement <> ALL (tried));
            EXIT WHEN todo = '{}';
            FOREACH step IN ARRAY todo LOOP
                FOR attempt IN 1 .. tries LOOP
                    SET LOCAL search_path = pg_catalog, pg_temp;
                    PERFORM set_config('lock_timeout', lock_timeout, true);
                    is_lock := false;
                    error := NULL;
                    BEGIN
                        EXECUTE step;
                    EXCEPTION
                        WHEN lock_not_available OR deadlock_detected THEN
                            is_lock := true;
                            error := SQLERRM;
                        WHEN OTHERS THEN
                            error := SQLERRM;
                    END;
                    COMMIT;
                    SET LOCAL search_path = pg_catalog, pg_temp;
                    EXIT WHEN NOT is_lock OR attempt = tries;
                    PERFORM pg_catalog.pg_sleep(extract(epoch FROM pause));
                END LOOP;
                tried := tried || step;
                errors := errors || error;
            END LOOP;
        END LOOP;
        -- What failed and is due no more was done by somebody else meanwhile
        SET LOCAL search_path = pg_catalog, pg_temp;
        FOR problem IN
            SELECT format('%s: %s', looked_at, d.what || coalesce(': ' || errors[array_position(tried, d.statement)], ''))
              FROM by_time.due(coalesce(at, now()), true, looked_at) d
        LOOP
            RAISE WARNING '%', problem;
            problems := problems + 1;
        END LOOP;
        COMMIT;
        SET LOCAL search_path = pg_catalog, pg_temp;
    END LOOP;
    IF problems > 0 THEN
        RAISE EXCEPTION '% of the steps that are due could not be done', problems
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'The warnings have the reasons.';
    END IF;
END $$;
COMMENT ON PROCEDURE by_time.maintain(text, integer, interval, timestamptz) IS
    'do what is due, for the tables that belong to the current role';
