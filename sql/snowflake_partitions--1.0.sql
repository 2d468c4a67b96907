/* sql/snowflake_partitions--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowflake_partitions" to load this file. \quit

-- Partitions by time, for tables that are partitioned by ranges of snowflakes.  due()
-- returns what there is to do and the statements for it, and changes nothing; maintain()
-- runs them.  All functions have the rights of the caller, and maintain the caller's own
-- tables only.
--
-- The functions that this script calls are PostgreSQL's, and are looked up now, once and
-- for all.  The schema of the extension snowflake, where others may have created functions
-- that fit better, is searched for two functions only.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- Roles that may use this schema may enter the tables that they own, and no
-- others.
CREATE SCHEMA snowflake_partitions;
COMMENT ON SCHEMA snowflake_partitions IS 'partitions by time, which are created ahead, and detached or dropped by age';
REVOKE ALL ON SCHEMA snowflake_partitions FROM PUBLIC;
GRANT USAGE ON SCHEMA snowflake_partitions TO @extowner@;
GRANT USAGE ON SCHEMA snowflake_partitions TO pg_database_owner WITH GRANT OPTION;

CREATE TABLE snowflake_partitions.tables (
	parent       regclass PRIMARY KEY,
	period       text NOT NULL CHECK (period IN ('hour', 'day', 'week', 'month', 'year')),
	time_zone    text NOT NULL CHECK (timestamptz '2000-01-01 UTC' AT TIME ZONE time_zone IS NOT NULL),
	ahead        integer NOT NULL DEFAULT 4 CHECK (ahead BETWEEN 1 AND 10000),
	since        timestamptz CHECK (isfinite(since)),
	keep         interval CHECK (keep > interval '0'),
	old          text NOT NULL DEFAULT 'detach' CHECK (old IN ('detach', 'drop')),
	default_rows text NOT NULL DEFAULT 'report' CHECK (default_rows IN ('report', 'move')),
	layout       text,
	owner        name NOT NULL,
	reported     int8multirange NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE snowflake_partitions.tables IS 'the tables that maintain() maintains';
COMMENT ON COLUMN snowflake_partitions.tables.parent IS 'a table partitioned by ranges of a first column of type snowflake or bigint';
COMMENT ON COLUMN snowflake_partitions.tables.period IS 'the time of one partition: hour, day, week, month or year';
COMMENT ON COLUMN snowflake_partitions.tables.time_zone IS
	'where days, weeks, months and years begin at midnight; hours are those of UTC';
COMMENT ON COLUMN snowflake_partitions.tables.ahead IS 'how many periods after the current one have a partition';
COMMENT ON COLUMN snowflake_partitions.tables.since IS 'the first period that has a partition; null: the current one';
COMMENT ON COLUMN snowflake_partitions.tables.keep IS 'a partition is old when all of it is older than this; null: never';
COMMENT ON COLUMN snowflake_partitions.tables.old IS
	'what is done with an old partition: detach (it stays, as a table of its own) or drop';
COMMENT ON COLUMN snowflake_partitions.tables.default_rows IS
	'what is done with rows of the default partition that have a period: report or move';
COMMENT ON COLUMN snowflake_partitions.tables.layout IS 'the layout of the IDs; null: the server''s';
COMMENT ON COLUMN snowflake_partitions.tables.owner IS
	'the role whose maintain() maintains the table: always set to the owner of the table when the row is written';
COMMENT ON COLUMN snowflake_partitions.tables.reported IS 'IDs whose rows in the default partition were reported';

-- Dropping takes two steps, and a run that ends between them is completed by the next one.
CREATE TABLE snowflake_partitions.dropping (
	partition regclass PRIMARY KEY,
	parent    regclass NOT NULL REFERENCES snowflake_partitions.tables ON UPDATE CASCADE ON DELETE CASCADE
);
COMMENT ON TABLE snowflake_partitions.dropping IS 'old partitions that are to be dropped as soon as they are detached';

REVOKE ALL ON TABLE snowflake_partitions.tables, snowflake_partitions.dropping FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE snowflake_partitions.tables, snowflake_partitions.dropping TO PUBLIC;

-- A dump has only the rows of tables that exist: what is left of a dropped one is a bare
-- OID, which would be another table where the dump is restored.
SELECT pg_extension_config_dump('snowflake_partitions.tables',
	'WHERE EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = parent)');
SELECT pg_extension_config_dump('snowflake_partitions.dropping',
	'WHERE EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = parent)'
	' AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = partition)');

-- A row decides what the owner's next run creates and drops, so only the owner
-- may write it.
CREATE FUNCTION snowflake_partitions.check_owner() RETURNS trigger
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	relation regclass;
	relowner oid;
BEGIN
	FOREACH relation IN ARRAY CASE TG_OP WHEN 'INSERT' THEN ARRAY[NEW.parent] WHEN 'DELETE' THEN ARRAY[OLD.parent]
		ELSE ARRAY[OLD.parent, NEW.parent] END
	LOOP
		relowner := (SELECT c.relowner FROM pg_class c WHERE c.oid = relation);
		IF relowner IS NULL AND TG_OP <> 'DELETE' AND relation = NEW.parent THEN
			RAISE EXCEPTION 'relation with OID % does not exist', relation::oid USING ERRCODE = 'undefined_table';
		ELSIF NOT pg_has_role(relowner, 'USAGE') THEN
			RAISE EXCEPTION 'must be owner of table %', relation USING ERRCODE = 'insufficient_privilege';
		END IF;
	END LOOP;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	IF TG_TABLE_NAME = 'tables' THEN
		NEW.owner := pg_get_userbyid(relowner);
	END IF;
	RETURN NEW;
END $$;
COMMENT ON FUNCTION snowflake_partitions.check_owner() IS 'trigger function: only the owner of a table may write its rows';

CREATE TRIGGER check_owner BEFORE INSERT OR UPDATE OR DELETE ON snowflake_partitions.tables
	FOR EACH ROW EXECUTE FUNCTION snowflake_partitions.check_owner();
COMMENT ON TRIGGER check_owner ON snowflake_partitions.tables IS 'only the owner of a table may write its row';
CREATE TRIGGER check_owner BEFORE INSERT OR UPDATE OR DELETE ON snowflake_partitions.dropping
	FOR EACH ROW EXECUTE FUNCTION snowflake_partitions.check_owner();
COMMENT ON TRIGGER check_owner ON snowflake_partitions.dropping IS 'only the owner of the tables may write a row';

-- The types are those of the declarations, so these are the extension's functions.
SELECT set_config('search_path', 'pg_catalog, ' || quote_ident(n.nspname) || ', pg_temp', true)
	FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
	WHERE e.extname = 'snowflake';

CREATE FUNCTION snowflake_partitions.bound(at timestamptz, layout text) RETURNS bigint STABLE
	RETURN CASE WHEN layout IS NULL THEN snowflake_lower_bound(at) ELSE snowflake_lower_bound(at, layout) END;
COMMENT ON FUNCTION snowflake_partitions.bound(timestamptz, text) IS 'the smallest ID at or after an instant';

CREATE FUNCTION snowflake_partitions.time_of(id bigint, layout text) RETURNS timestamptz STABLE
	RETURN CASE WHEN layout IS NULL THEN snowflake_timestamp(id) ELSE snowflake_timestamp(id, layout) END;
COMMENT ON FUNCTION snowflake_partitions.time_of(bigint, text) IS 'the time of an ID';

SELECT set_config('search_path', 'pg_catalog, pg_temp', true);

-- Periods are counted in local time: a day has 23 or 25 hours when the clocks change.
-- An hour of local time can occur twice, so hours are counted in UTC.
CREATE FUNCTION snowflake_partitions.first_instant(local timestamp, time_zone text) RETURNS timestamptz STABLE
	RETURN CASE WHEN (local AT TIME ZONE time_zone - interval '1 hour') AT TIME ZONE time_zone = local
		THEN local AT TIME ZONE time_zone - interval '1 hour' ELSE local AT TIME ZONE time_zone END;
COMMENT ON FUNCTION snowflake_partitions.first_instant(timestamp, text) IS
	'the instant of a local time, the first one if it occurs twice, as midnight does in Havana once a year';

CREATE FUNCTION snowflake_partitions.period_start(at timestamptz, period text, time_zone text, n integer DEFAULT 0)
	RETURNS timestamptz STABLE
	RETURN CASE WHEN period = 'hour' THEN date_trunc('hour', at, 'UTC') + n * interval '1 hour'
		ELSE snowflake_partitions.first_instant(
			date_trunc(period, at AT TIME ZONE time_zone) + n * ('1 ' || period)::interval, time_zone) END;
COMMENT ON FUNCTION snowflake_partitions.period_start(timestamptz, text, text, integer) IS
	'the beginning of the period that contains an instant, or of the nth one after that';

CREATE FUNCTION snowflake_partitions.full_name(relation regclass) RETURNS text
	LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
	SELECT format('%I.%I', n.nspname, c.relname)
	  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	 WHERE c.oid = relation
$$;
COMMENT ON FUNCTION snowflake_partitions.full_name(regclass) IS 'the name of a relation, with its schema';

-- If the key has several columns, the first one counts.  A bound that has a value for
-- another column, FROM (5, 'm') TO (9, 'm'), divides the rows of an ID, which then
-- belongs to both sides.
CREATE FUNCTION snowflake_partitions.existing(parent regclass)
	RETURNS TABLE (partition regclass, ids int8range, is_default boolean, is_pending boolean)
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	WITH bound (re) AS (
		VALUES ($re$\('?(-?\d+|MINVALUE|MAXVALUE)'?((?:, (?:E?'(?:[^']|'')*'|[^\s,()']+))*)\)$re$))
	SELECT c.oid::regclass,
		   int8range(CASE WHEN b[1] <> 'MINVALUE' THEN b[1]::bigint + (b[2] ^@ ', MAXVALUE')::integer END,
				CASE WHEN b[3] <> 'MAXVALUE' AND (b[4] = '' OR b[4] ^@ ', MINVALUE') THEN b[3]::bigint
					 WHEN b[3] NOT IN ('MAXVALUE', '9223372036854775807') THEN b[3]::bigint + 1 END),
		   pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT',
		   i.inhdetachpending
	  FROM pg_inherits i
	  JOIN pg_class c ON c.oid = i.inhrelid
	 CROSS JOIN bound
	 CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid), '^FOR VALUES FROM ' || re || ' TO ' || re || '$') b
	 WHERE i.inhparent = parent
$$;
COMMENT ON FUNCTION snowflake_partitions.existing(regclass) IS 'the partitions of a table, and the IDs of each';

CREATE FUNCTION snowflake_partitions.key_of(parent regclass) RETURNS name
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	WITH RECURSIVE types (attname, oid) AS (
		SELECT a.attname, a.atttypid
		  FROM pg_partitioned_table p
		  JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
		 WHERE p.partrelid = parent AND p.partstrat = 'r'
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
COMMENT ON FUNCTION snowflake_partitions.key_of(regclass) IS
	'the first column of a table''s range partition key, if its type is snowflake or bigint';

CREATE FUNCTION snowflake_partitions.free_name(relation regclass, stem text, suffix text, taken text[] DEFAULT '{}')
	RETURNS text
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	namespace oid := (SELECT c.relnamespace FROM pg_class c WHERE c.oid = relation);
	n         integer := 1;
	ending    text;
	start     text;
BEGIN
	LOOP
		ending := suffix || CASE WHEN n > 1 THEN '_' || n ELSE '' END;
		start := stem;
		-- the server would truncate a name that is too long at its end
		WHILE octet_length(start || ending) > 63 LOOP
			start := left(start, -1);
		END LOOP;
		-- a table is also a type
		EXIT WHEN start || ending <> ALL (taken)
			AND NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = namespace AND relname = start || ending)
			AND NOT EXISTS (SELECT FROM pg_type WHERE typnamespace = namespace AND typname = start || ending);
		n := n + 1;
	END LOOP;
	RETURN start || ending;
END $$;
COMMENT ON FUNCTION snowflake_partitions.free_name(regclass, text, text, text[]) IS
	'an unused name in the schema of a relation that is not in the list, with _2, _3 and so on if necessary';

-- log_2026_12 and so on.  If the beginning of a period is in another partition, the rest
-- is named after the minute in which it begins.
CREATE FUNCTION snowflake_partitions.name_of(parent regclass, start timestamptz, period text, time_zone text,
		is_rest boolean, taken text[] DEFAULT '{}') RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT snowflake_partitions.free_name(parent, c.relname,
			to_char(start AT TIME ZONE CASE period WHEN 'hour' THEN 'UTC' ELSE time_zone END,
				CASE CASE WHEN is_rest THEN 'minute' ELSE period END
					WHEN 'minute' THEN '_YYYY_MM_DD_HH24MI'
					WHEN 'hour' THEN '_YYYY_MM_DD_HH24'
					WHEN 'day' THEN '_YYYY_MM_DD'
					WHEN 'week' THEN '_IYYY_"w"IW'
					WHEN 'month' THEN '_YYYY_MM'
					ELSE '_YYYY' END), taken)
	  FROM pg_class c
	 WHERE c.oid = parent
$$;
COMMENT ON FUNCTION snowflake_partitions.name_of(regclass, timestamptz, text, text, boolean, text[]) IS
	'the name of a partition to create';

CREATE FUNCTION snowflake_partitions.statement_for_identity(schema text, name text, identity "char") RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT CASE identity
		WHEN 'f' THEN format('; ALTER TABLE %I.%I REPLICA IDENTITY FULL', schema, name)
		WHEN 'n' THEN format('; ALTER TABLE %I.%I REPLICA IDENTITY NOTHING', schema, name)
		ELSE '' END
$$;
COMMENT ON FUNCTION snowflake_partitions.statement_for_identity(text, text, "char") IS
	'the ALTER TABLE that gives a new partition a replica identity, unless that is a key';

-- The names of subpartitions follow those of the model: if that is log_2026_10 and has
-- log_2026_10_eu, log_2026_11 gets log_2026_11_eu.
CREATE FUNCTION snowflake_partitions.statement_for_parts(parent regclass, model regclass, child text) RETURNS text
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	schema     text := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent);
	taken      text[] := '{}';
	statement  text := '';
	part       record;
	name       text;
	model_name text;
BEGIN
	FOR part IN
		SELECT c.oid::regclass AS relation, c.relkind, c.relname, c.relreplident, pg_get_expr(c.relpartbound, c.oid) AS bound,
			   ' PARTITION BY ' || pg_get_partkeydef(c.oid) AS key,
			   row_number() OVER (ORDER BY c.relname) AS n
		  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		 WHERE i.inhparent = model AND NOT i.inhdetachpending
		 ORDER BY c.relname
	LOOP
		IF part.relkind = 'f' THEN
			RAISE EXCEPTION 'cannot create a partition like %: % is a foreign table', model, part.relation
				USING ERRCODE = 'feature_not_supported';
		END IF;
		model_name := (SELECT relname FROM pg_class WHERE oid = model);
		name := snowflake_partitions.free_name(parent, child,
			CASE WHEN part.relname ^@ (model_name || '_') THEN substr(part.relname, length(model_name) + 1)
				 ELSE '_' || part.n END, taken);
		taken := taken || name;
		statement := statement
			|| format('; CREATE TABLE %1$I.%2$I PARTITION OF %1$I.%3$I %4$s%5$s', schema, name, child, part.bound, part.key)
			|| snowflake_partitions.statement_for_identity(schema, name, part.relreplident)
			|| snowflake_partitions.statement_for_parts(parent, part.relation, name);
	END LOOP;
	RETURN statement;
END $$;
COMMENT ON FUNCTION snowflake_partitions.statement_for_parts(regclass, regclass, text) IS
	'the CREATE TABLE statements that give a partition the same subpartitions as another one';

-- The table is created by itself and attached when it is complete, since CREATE TABLE ...
-- PARTITION OF would lock out readers and writers of the others.  ATTACH creates the
-- indexes, and takes care of identity columns.  The new partition is subpartitioned like the
-- one before it, or else like the one after it; those without a beginning or an end are for
-- leftovers, and are not models.
CREATE FUNCTION snowflake_partitions.statement_to_make(parent regclass, child text, ids int8range) RETURNS text
	LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	WITH model AS (
		SELECT e.partition, ' PARTITION BY ' || pg_get_partkeydef(e.partition) AS key
		  FROM snowflake_partitions.existing(parent) e
		 WHERE EXISTS (SELECT FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid WHERE i.inhparent = parent AND k.relkind = 'p')
		   AND NOT (lower_inf(e.ids) OR upper_inf(e.ids) OR e.is_pending)
		 ORDER BY lower(e.ids) <= lower(statement_to_make.ids) DESC, abs(lower(e.ids)::numeric - lower(statement_to_make.ids))
		 LIMIT 1)
	SELECT format('CREATE TABLE %I.%I (LIKE %I.%I INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY)%s%s%s',
				n.nspname, child, n.nspname, c.relname, m.key, ' USING ' || quote_ident(a.amname),
				' TABLESPACE ' || quote_ident(s.spcname))
			|| coalesce(CASE WHEN m.key IS NOT NULL THEN snowflake_partitions.statement_for_parts(parent, m.partition, child) END, '')
			|| snowflake_partitions.statement_for_identity(n.nspname, child, c.relreplident)
			|| format('; ALTER TABLE %1$I.%2$I ATTACH PARTITION %1$I.%3$I FOR VALUES FROM (%4$L%5$s) TO (%6$s)',
				n.nspname, c.relname, child, lower(ids), repeat(', MINVALUE', p.partnatts - 1),
				CASE WHEN upper_inf(ids) THEN 'MAXVALUE' || repeat(', MAXVALUE', p.partnatts - 1)
					 ELSE quote_literal(upper(ids)) || repeat(', MINVALUE', p.partnatts - 1) END)
	  FROM pg_class c
	  JOIN pg_partitioned_table p ON p.partrelid = c.oid
	  JOIN pg_namespace n ON n.oid = c.relnamespace
	  LEFT JOIN pg_am a ON a.oid = c.relam
	  LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
	  LEFT JOIN model m ON true
	 WHERE c.oid = parent
$$;
COMMENT ON FUNCTION snowflake_partitions.statement_to_make(regclass, text, int8range) IS
	'the statements that create a partition and attach it';

-- Create a partition for IDs that have rows in the default partition, and move these.
-- They leave by a DELETE and come back by an INSERT into the table, so that triggers and
-- publications get both.
CREATE FUNCTION snowflake_partitions.move(parent regclass, partition text, ids int8range) RETURNS bigint
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	rest    regclass := (SELECT e.partition FROM snowflake_partitions.existing(parent) e WHERE e.is_default);
	key     name := snowflake_partitions.key_of(parent);
	columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = parent AND attnum > 0 AND NOT attisdropped AND attgenerated = '');
	removed bigint;
	added   bigint;
BEGIN
	EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', snowflake_partitions.full_name(parent));
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', snowflake_partitions.full_name(rest));
	-- ON DELETE CASCADE would take the rows that reference them along
	IF EXISTS (SELECT FROM pg_constraint c WHERE c.contype = 'f' AND c.confrelid = rest) THEN
		RAISE EXCEPTION 'cannot move rows out of %: foreign keys reference it', rest
			USING ERRCODE = 'feature_not_supported';
	END IF;
	EXECUTE format('CREATE TEMPORARY TABLE snowflake_partitions_moved ON COMMIT DROP AS SELECT %s FROM %s LIMIT 0',
		columns, snowflake_partitions.full_name(rest));
	EXECUTE format('WITH moved AS (DELETE FROM %1$s WHERE %2$I::bigint BETWEEN $1 AND $2 RETURNING %3$s)'
		' INSERT INTO pg_temp.snowflake_partitions_moved SELECT %3$s FROM moved', snowflake_partitions.full_name(rest), key, columns)
		USING lower(ids), coalesce(upper(ids) - 1, 9223372036854775807);
	GET DIAGNOSTICS removed = ROW_COUNT;
	EXECUTE snowflake_partitions.statement_to_make(parent, partition, ids);
	EXECUTE format('INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM pg_temp.snowflake_partitions_moved',
		snowflake_partitions.full_name(parent), columns);
	GET DIAGNOSTICS added = ROW_COUNT;
	DROP TABLE pg_temp.snowflake_partitions_moved;
	IF added <> removed THEN
		RAISE EXCEPTION 'only % of % rows of % were moved', added, removed, rest
			USING ERRCODE = 'triggered_action_exception', HINT = 'Check for triggers that suppress inserts.';
	END IF;
	RETURN added;
END $$;
COMMENT ON FUNCTION snowflake_partitions.move(regclass, text, int8range) IS
	'create a partition, and move the rows that belong there from the default partition';

CREATE FUNCTION snowflake_partitions.report(parent regclass, ids int8range, what text) RETURNS void
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RAISE WARNING '%: %', parent, what;
	UPDATE snowflake_partitions.tables t SET reported = reported + int8multirange(ids) WHERE t.parent = report.parent;
END $$;
COMMENT ON FUNCTION snowflake_partitions.report(regclass, int8range, text) IS
	'warn about rows of the default partition, once';

CREATE FUNCTION snowflake_partitions.due_for(t snowflake_partitions.tables, at timestamptz, in_transaction boolean)
	RETURNS TABLE (what text, statement text)
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	owner     oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = t.parent);
	key       name := snowflake_partitions.key_of(t.parent);
	rest      regclass;             -- the default partition
	is_fixed  boolean;              -- its rows stay
	others    int8multirange;       -- the IDs that have another partition
	pending   regclass[];           -- partitions that are half detached
	half      regclass;
	oldest    timestamptz;          -- rows that are older are not kept
	old_ids   bigint;
	starts    timestamptz[] := '{}';
	planned   timestamptz[];
	start     timestamptz;
	ids       int8range;
	next_id   bigint := 0;
	first     timestamptz;
	last      timestamptz;
	n         integer := 0;
	p         record;
	gap       int8range;
	child     text;
	children  text[] := '{}';
	count     bigint;
BEGIN
	what := CASE
		WHEN owner IS NULL THEN format('the table does not exist any more: DELETE FROM snowflake_partitions.tables WHERE parent = %s',
			t.parent::oid)
		-- its triggers and expressions would be run with the rights of somebody else
		WHEN pg_get_userbyid(owner) <> current_user THEN
			format('belongs to %s, who has to update its row of snowflake_partitions.tables', owner::regrole)
		WHEN key IS NULL THEN 'is not partitioned by ranges of a first column of type snowflake or bigint' END;
	IF what IS NOT NULL THEN
		RETURN NEXT;
		RETURN;
	END IF;

	SELECT max(e.partition::oid) FILTER (WHERE e.is_default),
		   coalesce(range_agg(e.ids) FILTER (WHERE NOT e.is_default), '{}'),
		   coalesce(array_agg(e.partition) FILTER (WHERE e.is_pending), '{}')
	  INTO rest, others, pending
	  FROM snowflake_partitions.existing(t.parent) e;
	-- A partition that is not completely detached blocks everything else.
	FOREACH half IN ARRAY pending LOOP
		what := format('complete the detachment of %s', half);
		statement := format('ALTER TABLE %s DETACH PARTITION %s FINALIZE',
			snowflake_partitions.full_name(t.parent), snowflake_partitions.full_name(half));
		RETURN NEXT;
	END LOOP;

	is_fixed := t.default_rows = 'report'
		OR EXISTS (SELECT FROM pg_constraint c WHERE c.contype = 'f' AND c.confrelid = rest);
	BEGIN
		oldest := (at AT TIME ZONE t.time_zone - t.keep) AT TIME ZONE t.time_zone;
	EXCEPTION WHEN datetime_field_overflow THEN
		-- that is before all times, so nothing is old
		oldest := '-infinity';
	END;
	BEGIN
		old_ids := snowflake_partitions.bound(oldest, t.layout);
	EXCEPTION WHEN datetime_field_overflow THEN
		-- the layout ended before that: all IDs are old
		old_ids := 9223372036854775807;
	END;

	-- The periods that are to have a partition, and those of rows in the default partition
	first := CASE WHEN t.since < at THEN greatest(t.since, oldest) ELSE at END;
	last := snowflake_partitions.period_start(at, t.period, t.time_zone, t.ahead);
	LOOP
		start := snowflake_partitions.period_start(first, t.period, t.time_zone, n);
		EXIT WHEN start > last;
		starts := starts || start;
		n := n + 1;
	END LOOP;
	planned := starts;
	WHILE rest IS NOT NULL LOOP
		EXECUTE format('SELECT min(%1$I::bigint) FROM %2$s WHERE %1$I::bigint >= $1', key, snowflake_partitions.full_name(rest))
		   INTO next_id USING next_id;
		EXIT WHEN next_id IS NULL;
		ids := int8range(next_id, NULL);
		start := NULL;
		BEGIN
			start := snowflake_partitions.period_start(snowflake_partitions.time_of(next_id, t.layout), t.period, t.time_zone);
			ids := int8range(snowflake_partitions.bound(start, t.layout),
				snowflake_partitions.bound(snowflake_partitions.period_start(start, t.period, t.time_zone, 1), t.layout));
		EXCEPTION WHEN numeric_value_out_of_range OR datetime_field_overflow THEN
			-- a period that the layout has only a part of, or none
			NULL;
		END;
		IF upper(ids) <= old_ids THEN
			-- what is not kept stays where it is: a partition of its own would be dropped
			NULL;
		ELSIF start = ANY (planned) OR NOT (is_fixed OR upper_inf(ids)) THEN
			starts := starts || start;
		ELSIF NOT t.reported @> next_id THEN
			EXECUTE format('SELECT count(*) FROM %s WHERE %I::bigint BETWEEN $1 AND $2', snowflake_partitions.full_name(rest), key)
				INTO count USING next_id, coalesce(upper(ids) - 1, 9223372036854775807);
			what := format('%s has %s rows from ID %s on, %s', rest, count, next_id,
				CASE WHEN upper_inf(ids) THEN 'which belong to no whole period of the layout'
					 ELSE format('of the %s that begins at %s', t.period, start) END);
			statement := format('SELECT snowflake_partitions.report(%L, %L, %L)',
				snowflake_partitions.full_name(t.parent), ids, what);
			RETURN NEXT;
		END IF;
		next_id := upper(ids);
		EXIT WHEN next_id IS NULL;
	END LOOP;

	-- A period can be without IDs: islands have skipped a day
	FOR p IN
		SELECT DISTINCT s.start, NULL::bigint AS lower, NULL::bigint AS upper FROM unnest(starts) AS s (start) ORDER BY s.start
	LOOP
		BEGIN
			p.lower := snowflake_partitions.bound(p.start, t.layout);
		EXCEPTION WHEN data_exception THEN
			what := format('cannot create a partition from %s: %s', p.start, SQLERRM);
			statement := NULL;
			RETURN NEXT;
			EXIT;
		END;
		BEGIN
			p.upper := snowflake_partitions.bound(snowflake_partitions.period_start(p.start, t.period, t.time_zone, 1), t.layout);
		EXCEPTION WHEN datetime_field_overflow THEN
			-- the layout ends before the period does
			p.upper := NULL;
		END;
		FOR gap IN SELECT unnest(int8multirange(int8range(p.lower, p.upper)) - others) LOOP
			BEGIN
				start := CASE WHEN lower(gap) = p.lower THEN p.start ELSE snowflake_partitions.time_of(lower(gap), t.layout) END;
			EXCEPTION WHEN numeric_value_out_of_range OR datetime_field_overflow THEN
				-- between or above partitions for what is larger than the layout's IDs
				CONTINUE;
			END;
			child := snowflake_partitions.name_of(t.parent, start, t.period, t.time_zone, lower(gap) > p.lower, children);
			children := children || child;
			statement := NULL;
			count := 0;
			IF rest IS NOT NULL THEN
				EXECUTE format('SELECT count(*) FROM %s WHERE %I::bigint BETWEEN $1 AND $2', snowflake_partitions.full_name(rest), key)
					INTO count USING lower(gap), coalesce(upper(gap) - 1, 9223372036854775807);
			END IF;
			IF count = 0 THEN
				what := format('create %s, from %s', child, start);
				statement := snowflake_partitions.statement_to_make(t.parent, child, gap);
			ELSIF is_fixed THEN
				what := format('cannot create %s, from %s: %s has %s rows of that time%s', child, start, rest, count,
					CASE WHEN t.default_rows = 'move' THEN ', which foreign keys reference' ELSE '' END);
			ELSE
				what := format('create %s, from %s, with %s rows of %s', child, start, count, rest);
				statement := format('SELECT snowflake_partitions.move(%L, %L, %L)',
					snowflake_partitions.full_name(t.parent), child, gap);
			END IF;
			RETURN NEXT;
		END LOOP;
	END LOOP;

	FOR p IN
		SELECT e.partition, d.partition IS NOT NULL AS is_noted
		  FROM snowflake_partitions.existing(t.parent) e
		  LEFT JOIN snowflake_partitions.dropping d USING (partition)
		 WHERE t.keep IS NOT NULL AND NOT e.is_default AND NOT e.is_pending AND upper(e.ids) <= old_ids
		 ORDER BY e.ids
	LOOP
		IF t.old = 'drop' AND NOT p.is_noted THEN
			what := format('note that %s is to be dropped', p.partition);
			statement := format('INSERT INTO snowflake_partitions.dropping VALUES (%L, %L)',
				snowflake_partitions.full_name(p.partition), snowflake_partitions.full_name(t.parent));
			RETURN NEXT;
		END IF;
		-- PostgreSQL does not detach concurrently if there is a default
		-- partition
		what := format('detach %s', p.partition);
		statement := format('ALTER TABLE %s DETACH PARTITION %s%s', snowflake_partitions.full_name(t.parent),
			snowflake_partitions.full_name(p.partition),
			CASE WHEN NOT in_transaction AND rest IS NULL THEN ' CONCURRENTLY' ELSE '' END);
		RETURN NEXT;
	END LOOP;

	FOR p IN
		SELECT d.partition, c.oid IS NOT NULL AND NOT c.relispartition AS is_detached,
			   coalesce(e.is_pending OR upper(e.ids) <= old_ids, false) AS is_old
		  FROM snowflake_partitions.dropping d
		  LEFT JOIN pg_class c ON c.oid = d.partition
		  LEFT JOIN LATERAL (SELECT * FROM snowflake_partitions.existing(t.parent) x WHERE x.partition = d.partition) e ON true
		 WHERE d.parent = t.parent
		 ORDER BY c.relname
	LOOP
		statement := format('DELETE FROM snowflake_partitions.dropping WHERE partition::oid = %s', p.partition::oid);
		IF t.old = 'drop' AND p.is_detached THEN
			what := format('drop %s', p.partition);
			statement := format('DROP TABLE %s; ', snowflake_partitions.full_name(p.partition)) || statement;
			RETURN NEXT;
		ELSIF t.old <> 'drop' OR NOT p.is_old THEN
			what := format('forget that %s was to be dropped', p.partition);
			RETURN NEXT;
		END IF;
	END LOOP;
END $$;
COMMENT ON FUNCTION snowflake_partitions.due_for(snowflake_partitions.tables, timestamptz, boolean) IS 'what is due for one table';

CREATE FUNCTION snowflake_partitions.due(at timestamptz DEFAULT now(), in_transaction boolean DEFAULT false,
		only_table regclass DEFAULT NULL)
	RETURNS TABLE (parent regclass, what text, statement text)
	LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	t snowflake_partitions.tables;
BEGIN
	FOR t IN
		SELECT * FROM snowflake_partitions.tables x
		 WHERE x.owner = current_user AND (only_table IS NULL OR x.parent = only_table)
		 ORDER BY x.parent::oid
	LOOP
		BEGIN
			RETURN QUERY SELECT t.parent, d.what, d.statement FROM snowflake_partitions.due_for(t, at, in_transaction) d;
		EXCEPTION WHEN OTHERS THEN
			RETURN QUERY SELECT t.parent, format('cannot determine what is due: %s', SQLERRM), NULL;
		END;
	END LOOP;
END $$;
COMMENT ON FUNCTION snowflake_partitions.due(timestamptz, boolean, regclass) IS
	'what is due for the tables of the current role, and the statements that do it; without a statement, it is for an administrator';

-- Each statement is a transaction of its own, and waits for locks only for a moment,
-- since later sessions wait behind it.  A step that fails does not prevent the others.
CREATE PROCEDURE snowflake_partitions.maintain(lock_timeout text DEFAULT '200ms', tries integer DEFAULT 10,
	pause interval DEFAULT '1 second', at timestamptz DEFAULT NULL)
	LANGUAGE plpgsql AS $$
DECLARE
	-- before the search_path is set, types are looked up in that of the caller
	looked_at pg_catalog.regclass;
	parents   pg_catalog.regclass[];
	todo      pg_catalog.text[];
	tried     pg_catalog.text[];
	errors    pg_catalog.text[];
	step      pg_catalog.text;
	error     pg_catalog.text;
	is_lock   pg_catalog.bool;
	problems  pg_catalog.text[] := '{}';
BEGIN
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	parents := ARRAY(SELECT x.parent FROM snowflake_partitions.tables x WHERE x.owner = current_user ORDER BY x.parent::oid);
	IF parents = '{}' THEN
		RAISE EXCEPTION 'role % owns no table in snowflake_partitions.tables', current_user
			USING ERRCODE = 'object_not_in_prerequisite_state',
				  HINT = 'Only the owner of a table can maintain its partitions.';
	END IF;
	FOREACH looked_at IN ARRAY parents LOOP
		tried := '{}';
		errors := '{}';
		-- A step makes others due: a detached partition is dropped.  The number of passes is
		-- limited because each may find more rows.
		FOR pass IN 1 .. 10 LOOP
			SET LOCAL search_path = pg_catalog, pg_temp;
			todo := ARRAY(SELECT d.statement FROM snowflake_partitions.due(coalesce(at, now()), true, looked_at) d
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
		-- A step that failed and is no longer due was done by another session
		-- meanwhile
		problems := problems || ARRAY(
			SELECT format('%s: %s', looked_at, d.what || coalesce(': ' || errors[array_position(tried, d.statement)], ''))
			  FROM snowflake_partitions.due(coalesce(at, now()), true, looked_at) d);
		COMMIT;
		SET LOCAL search_path = pg_catalog, pg_temp;
	END LOOP;
	IF problems <> '{}' THEN
		RAISE EXCEPTION '% of the steps that are due failed', cardinality(problems)
			USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = array_to_string(problems, E'\n');
	END IF;
END $$;
COMMENT ON PROCEDURE snowflake_partitions.maintain(text, integer, interval, timestamptz) IS
	'do what is due, for the tables that belong to the current role';
