/* sql/snowflake_keeper--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowflake_keeper" to load this file. \quit

-- The keeper's own schema: see src/keeper/reservation_table.c.  Its owner could
-- replace the table, and objects that already exist in it could be a trap for this
-- script, so the schema must belong to a superuser.  Every name below is qualified
-- for the same reason.

DO $$
BEGIN
	IF NOT (SELECT r.rolsuper
			FROM pg_catalog.pg_namespace n
			JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
			WHERE n.nspname OPERATOR(pg_catalog.=) 'snowflake_keeper')
	THEN
		RAISE insufficient_privilege USING
			MESSAGE = 'schema "snowflake_keeper" does not belong to a superuser',
			DETAIL = 'Its owner could replace objects that the snowflake keeper depends on.',
			HINT = 'Drop the schema, or rename it: the extension creates its own.';
	END IF;
END
$$;

-- One row for each node ID that this server ever had; only the keeper writes the
-- table.  It belongs to one server, so pg_dump must not carry it to another one: its
-- contents are not marked as configuration.

CREATE TABLE snowflake_keeper.reservation (
	node pg_catalog.int4 PRIMARY KEY,
	layout pg_catalog.text NOT NULL,
	reserved_until pg_catalog.timestamptz NOT NULL,
	in_order pg_catalog.bool NOT NULL DEFAULT true
);
COMMENT ON TABLE snowflake_keeper.reservation IS 'how far ahead snowflakes may have been minted, by node ID';
COMMENT ON COLUMN snowflake_keeper.reservation.node IS 'node ID; -1 stands for all node IDs that have no row, if rows were lost';
COMMENT ON COLUMN snowflake_keeper.reservation.layout IS 'layout of the snowflakes, canonical';
COMMENT ON COLUMN snowflake_keeper.reservation.reserved_until IS 'no snowflake of a later tick was ever minted';
COMMENT ON COLUMN snowflake_keeper.reservation.in_order IS 'whether snowflakes of other node IDs are minted above these; snowflake_restart_at_clock() sets it to false';

-- A publication of all tables would bring the rows of another server here, and
-- those of the same node ID would overwrite this server's own.  Only the apply
-- worker of a subscription fires this trigger: the keeper's writes fire none.

CREATE FUNCTION snowflake_keeper.not_replicated() RETURNS trigger
	AS '$libdir/snowflake', 'snowflake_reservation_not_replicated' LANGUAGE C;
COMMENT ON FUNCTION snowflake_keeper.not_replicated() IS 'drops rows that logical replication brings from another server';

CREATE TRIGGER not_replicated BEFORE INSERT OR UPDATE OR DELETE ON snowflake_keeper.reservation
	FOR EACH ROW EXECUTE FUNCTION snowflake_keeper.not_replicated();
COMMENT ON TRIGGER not_replicated ON snowflake_keeper.reservation IS 'keeps logical replication out of the reservation';
ALTER TABLE snowflake_keeper.reservation ENABLE REPLICA TRIGGER not_replicated;

-- If a row were lowered, IDs would be issued twice, and members of
-- pg_write_all_data may write any table.  Only a superuser may write this one, and
-- no role may truncate it, since a subscriber could not drop a TRUNCATE.

CREATE FUNCTION snowflake_keeper.keeper_only() RETURNS trigger
	AS '$libdir/snowflake', 'snowflake_reservation_keeper_only' LANGUAGE C;
COMMENT ON FUNCTION snowflake_keeper.keeper_only() IS 'refuses statements that write the reservation';

CREATE TRIGGER keeper_only BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON snowflake_keeper.reservation
	FOR EACH STATEMENT EXECUTE FUNCTION snowflake_keeper.keeper_only();
COMMENT ON TRIGGER keeper_only ON snowflake_keeper.reservation IS 'keeps roles that may write any table out of the reservation';

-- Default privileges may have granted anything to any role.

DO $$
DECLARE
	command pg_catalog.text;
BEGIN
	FOR command IN
		SELECT pg_catalog.format('REVOKE ALL ON %s FROM %s CASCADE', o.name,
				CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC'
				ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END)
		FROM (
			SELECT 'TABLE snowflake_keeper.reservation', relowner,
				coalesce(relacl, pg_catalog.acldefault('r', relowner))
			FROM pg_catalog.pg_class
			WHERE oid OPERATOR(pg_catalog.=) 'snowflake_keeper.reservation'::pg_catalog.regclass
			UNION ALL
			SELECT 'FUNCTION snowflake_keeper.not_replicated()', proowner,
				coalesce(proacl, pg_catalog.acldefault('f', proowner))
			FROM pg_catalog.pg_proc
			WHERE oid OPERATOR(pg_catalog.=) 'snowflake_keeper.not_replicated()'::pg_catalog.regprocedure
			UNION ALL
			SELECT 'FUNCTION snowflake_keeper.keeper_only()', proowner,
				coalesce(proacl, pg_catalog.acldefault('f', proowner))
			FROM pg_catalog.pg_proc
			WHERE oid OPERATOR(pg_catalog.=) 'snowflake_keeper.keeper_only()'::pg_catalog.regprocedure
			UNION ALL
			SELECT 'SCHEMA snowflake_keeper', nspowner, nspacl
			FROM pg_catalog.pg_namespace
			WHERE nspname OPERATOR(pg_catalog.=) 'snowflake_keeper') AS o (name, owner, acl),
			LATERAL (SELECT DISTINCT grantee FROM pg_catalog.aclexplode(o.acl)) AS a
		WHERE a.grantee OPERATOR(pg_catalog.<>) o.owner
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;
