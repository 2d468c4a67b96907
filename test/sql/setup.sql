-- What the other tests use.
CREATE EXTENSION snowflake;

-- What a statement's error says; a statement without an error gives its result.
CREATE FUNCTION outcome(command text)
	RETURNS TABLE (statement text, code text, message text, detail text, hint text)
	LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	statement := command;
	EXECUTE command INTO result;
	message := result;
	RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END $$;

-- How many rows the planner expects of a query.
CREATE FUNCTION estimate(query text) RETURNS float LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan->0->'Plan'->>'Plan Rows';
END $$;

-- A query's plan, and whether it has a line like this.
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || query;
END $$;
CREATE FUNCTION plan_has(query text, pattern text) RETURNS bool LANGUAGE sql
	AS $$SELECT coalesce(bool_or(line ~ pattern), false) FROM plan(query) line$$;

-- Every object of the extension is described; array and row types come along
-- with others.
SELECT pg_describe_object(classid, objid, 0)
	FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake')
		AND obj_description(objid, classid::regclass::name) IS NULL
		AND (classid <> 'pg_type'::regclass OR objid = 'snowflake'::regtype)
	ORDER BY 1;

CREATE TEMP VIEW members AS
	SELECT p.* FROM pg_depend JOIN pg_extension e ON e.oid = refobjid JOIN pg_proc p ON p.oid = objid
	WHERE deptype = 'e' AND classid = 'pg_proc'::regclass AND extname = 'snowflake';

-- Functions that are not stable, strict and parallel safe at the least.
SELECT oid::regprocedure, provolatile, proisstrict, proparallel
	FROM members WHERE (NOT proisstrict OR proparallel <> 's' OR provolatile = 'v')
		AND prokind = 'f'
	ORDER BY 1;

-- What depends on the server's layout is stable: nothing is immutable that decodes
-- without a layout argument.
SELECT oid::regprocedure
	FROM members WHERE provolatile = 'i' AND proargnames IS NOT NULL AND NOT 'layout' = ANY (proargnames[1:pronargs])
	ORDER BY 1;

-- What depends on the session's time zone is stable as well.
SELECT oid::regprocedure
	FROM members WHERE provolatile = 'i' AND proargtypes::oid[] && '{date, timestamp}'::regtype[]::oid[]
	ORDER BY 1;

-- So is what decodes a snowflake in an operator or a cast: its argument has no name.
SELECT oid::regprocedure
	FROM members WHERE provolatile = 'i' AND proargnames IS NULL AND proargtypes[0] = 'snowflake'::regtype
		AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'c')
		AND prorettype NOT IN ('cstring'::regtype, 'bytea'::regtype)
	ORDER BY 1;
