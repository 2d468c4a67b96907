/*-------------------------------------------------------------------------
 *
 * reservation.c
 *	  The table in which the keeper keeps the reservation.
 *
 * snowflake_reservation is an ordinary table of the extension, with a row per
 * node ID.  reserved_until is the start of the last tick that may have been
 * used.  A row in a table is carried by crash recovery, replication,
 * point-in-time recovery, base backups and pg_upgrade without a line of code
 * here.
 *
 * All but the trigger run in the keeper, inside a transaction with SPI connected.
 * When that is durable, and what may be published then, is for keeper.c to
 * say.  The table is looked up each time, since an extension can be moved or
 * dropped.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "layout.h"
#include "reservation.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_reservation_not_replicated);

/* Run a command that must have this result. */
static void
run(const char *command, int nargs, Oid *types, Datum *values, int expected)
{
	int			result = SPI_execute_with_args(command, nargs, types, values,
											   NULL, false, 0);

	if (result != expected)
		elog(ERROR, "\"%s\" returned %s", command, SPI_result_code_string(result));
}

/* The schema-qualified name of the table, or NULL if the extension is missing. */
static char *
find_table(void)
{
	run("SELECT pg_catalog.quote_ident(n.nspname) OPERATOR(pg_catalog.||) '.snowflake_reservation'"
		" FROM pg_catalog.pg_extension e"
		" JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace"
		" WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake'",
		0, NULL, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
		return NULL;
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

/* The same for those who know that it is there. */
static char *
get_table(void)
{
	char	   *table = find_table();

	if (table == NULL)
		elog(ERROR, "extension \"snowflake\" does not exist");
	return table;
}

/* The configured layout, canonical, as a datum. */
static Datum
configured_layout(void)
{
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];

	snowflake_layout_print(&snowflake_server_layout, text, sizeof(text));
	return CStringGetTextDatum(text);
}

bool
snowflake_reservation_exists(void)
{
	return find_table() != NULL;
}

/*
 * Create the extension, in public if there is such a schema.  Somebody may be
 * doing the same at this moment: then this fails, and a later round of the
 * keeper finds what they made.
 */
void
snowflake_reservation_create(void)
{
	const char *schema = "public";

	run("SELECT FROM pg_catalog.pg_namespace"
		" WHERE nspname OPERATOR(pg_catalog.=) 'public'",
		0, NULL, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
	{
		schema = "snowflake";
		run("CREATE SCHEMA IF NOT EXISTS snowflake", 0, NULL, NULL, SPI_OK_UTILITY);
	}
	ereport(LOG,
			errmsg("creating extension \"snowflake\" in database \"%s\" for the reservation",
				   snowflake_database));
	run(psprintf("CREATE EXTENSION IF NOT EXISTS snowflake SCHEMA %s", schema),
		0, NULL, NULL, SPI_OK_UTILITY);
}

/*
 * Read the rows.  Those of other node IDs count as well: a server's IDs ascend
 * also if its node ID changed while it was down.  And they all are of one
 * layout, the server's.
 */
SnowflakeReservation
snowflake_reservation_read(void)
{
	SnowflakeReservation stored;
	Oid			types[] = {TEXTOID};
	Datum		values[] = {configured_layout()};
	bool		isnull;
	Datum		until;

	run(psprintf("SELECT pg_catalog.max(reserved_until),"
				 " pg_catalog.min(layout) FILTER (WHERE layout OPERATOR(pg_catalog.<>) $1)"
				 " FROM %s", get_table()),
		lengthof(types), types, values, SPI_OK_SELECT);
	until = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	stored.found = !isnull;
	stored.until = isnull ? 0 : DatumGetTimestampTz(until);
	stored.other_layout = SPI_getvalue(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 2);
	return stored;
}

/*
 * Write the row of a node ID, of the configured layout.  If the table is gone,
 * it was dropped under a running generator, and is made again.
 */
void
snowflake_reservation_write(int32 node, TimestampTz until)
{
	Oid			types[] = {INT4OID, TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {Int32GetDatum(node), configured_layout(),
	TimestampTzGetDatum(until)};
	char	   *table = find_table();

	if (table == NULL)
	{
		snowflake_reservation_create();
		table = get_table();
	}

	run(psprintf("INSERT INTO %s (node, layout, reserved_until) VALUES ($1, $2, $3)"
				 " ON CONFLICT (node) DO UPDATE SET layout = EXCLUDED.layout,"
				 " reserved_until = EXCLUDED.reserved_until", table),
		lengthof(types), types, values, SPI_OK_INSERT);

	/* a rule or a trigger that swallows it must not go unnoticed */
	if (SPI_processed != 1)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the reservation was not written to %s", table),
				errdetail("Something swallowed the row of node %d.", node),
				errhint("Drop rules and triggers that were added to the table."));
}

/* From now on the rows are of the configured layout. */
void
snowflake_reservation_accept_layout(void)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {configured_layout()};

	run(psprintf("UPDATE %s SET layout = $1", get_table()),
		lengthof(types), types, values, SPI_OK_UPDATE);
}

/*
 * Trigger of the table for what logical replication brings from another server:
 * drop it.  The row is this server's own, even if somebody publishes all tables.
 */
Datum
snowflake_reservation_not_replicated(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("%s was not called by a trigger",
					   "snowflake_reservation_not_replicated()"));
	return PointerGetDatum(NULL);
}
