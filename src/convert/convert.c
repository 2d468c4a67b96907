/*-------------------------------------------------------------------------
 *
 * convert.c
 *	  Turn an integer key into one that is filled with snowflakes.
 *
 * Ordinary statements do everything, with the rights of the tables'
 * owners, in the caller's transaction; nothing here writes a catalog.  This
 * code only knows which statements: facts.c collects the key column and
 * all columns that hang together with it by inheritance and foreign keys,
 * obstacles.c and expressions.c refuse what cannot be done, locks.c locks,
 * plan.c writes statements, and roles.c says why the caller's own rights are
 * not used.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/clock.h"
#include "base/compat.h"
#include "convert/convert.h"
#include "convert/query.h"
#include "generator/generator.h"
#include "layout/server_layout.h"
#include "mint/mint.h"
#include "mint/state.h"

PG_FUNCTION_INFO_V1(snowflake_convert_column);


/*
 * Find out all that there is to know before locks, with a safe search_path, of
 * the caller's own role.
 */
static void
collect(Conversion *conv)
{
	SavedRole	saved;

	snowflake_convert_become(GetUserId(), 0, &saved);
	snowflake_convert_check_table(conv);
	snowflake_convert_collect_columns(conv);
	snowflake_convert_collect_sequences(conv);
	snowflake_convert_collect_references(conv);
	snowflake_convert_check_columns(conv);
	snowflake_convert_return(&saved);
}

/* Likewise, with the locks. */
static void
check_definitions(Conversion *conv)
{
	SavedRole	saved;

	snowflake_convert_become(GetUserId(), 0, &saved);
	snowflake_convert_check_row_types(conv);
	snowflake_convert_check_expressions(conv);
	snowflake_convert_return(&saved);
}

/*
 * The tables are locked, so they keep their names, but a schema that is renamed
 * does not wait: the statements would then refer to other tables.
 */
pg_noreturn static void
fail_renamed(Conversion *conv, const char *relation)
{
	ereport(ERROR,
			errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			errmsg("could not convert column \"%s\" of table %s to snowflakes due to concurrent renaming",
				   conv->column, conv->key->table),
			errdetail("The statements no longer refer to %s. Nothing was changed.", relation),
			errhint("Run the conversion again."));
}

/* A look just before each statement, lest hours are spent on another table. */
static void
check_name(Conversion *conv, Oid relid, const char *name)
{
	char	   *relation = get_rel_name(relid);
	char	   *schema = get_namespace_name(get_rel_namespace(relid));

	if (relation == NULL || schema == NULL ||
		strcmp(quote_qualified_identifier(schema, relation), name) != 0)
		fail_renamed(conv, name);
}

/*
 * Check that what the statements were for has been done to the relations they
 * were written for: nothing is left to do, and what was to go or to stay has.
 */
static void
check_result(Conversion *conv)
{
	Conversion	after = *conv;
	ListCell   *lc;

	collect(&after);
	snowflake_convert_plan(&after);
	if (after.statements != NIL)
		fail_renamed(conv, ((KeyStatement *) llast(after.statements))->relation);

	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		if ((OidIsValid(sequence->identity_of) || snowflake_convert_drops(sequence)) &&
			SearchSysCacheExists1(RELOID, ObjectIdGetDatum(sequence->relid)))
			fail_renamed(conv, sequence->name);
	}
	foreach(lc, conv->references)
	{
		KeyReference *reference = lfirst(lc);
		Oid			oid = get_relation_constraint_oid(reference->relid, reference->name, true);
		HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(oid));

		if (!HeapTupleIsValid(tuple) ||
			((Form_pg_constraint) GETSTRUCT(tuple))->confrelid != reference->referenced)
			fail_renamed(conv, reference->table);
		ReleaseSysCache(tuple);
	}
}

static void
execute(Conversion *conv)
{
	ListCell   *lc;

	/* the first of them takes the locks, which are held already */
	for_each_from(lc, conv->statements, 1)
	{
		KeyStatement *statement = lfirst(lc);
		int			result;

		check_name(conv, statement->relid, statement->relation);
		result = snowflake_convert_run(statement->owner, statement->command);
		if (result != SPI_OK_UTILITY)
			elog(ERROR, "statement failed: %s: %s", SPI_result_code_string(result),
				 statement->command);
	}
	check_result(conv);
	foreach(lc, conv->notices)
		ereport(NOTICE, errmsg_internal("%s", (char *) lfirst(lc)));
}


/*
 * The keys that are there
 */

/*
 * The ID that would be minted next.  For a dry run on a server that does not
 * mint, about that; one that has never minted is well all the same.
 */
static int64
next_id(Conversion *conv)
{
	SnowflakeGate gate = snowflake_generator_exists() ? snowflake_generator_gate() : GATE_NO_KEEPER;

	if (conv->dry_run && gate != GATE_OPEN)
	{
		if (gate != GATE_WAITING)
			ereport(WARNING,
					errmsg("nothing can be minted at present"),
					errdetail("The gate is %s.", snowflake_state_gate()),
					errhint("The conversion needs a server that can mint. SELECT snowflake_next() shows why this one cannot."));
		return snowflake_layout_id_until(&snowflake_server_layout, snowflake_clock_wall());
	}
	return snowflake_mint("snowflake_convert_column()");
}

static char *
key_aggregate(const char *function, KeyColumn *key)
{
	return psprintf("pg_catalog.%s(%s)::pg_catalog.int8", function, quote_identifier(key->name));
}

/*
 * Check that the keys present are below all that will be minted, and that
 * something can be.
 *
 * The smallest is needed for a type that has no negative numbers, the largest
 * where new keys will be minted.  Each is a look into an index that starts with
 * the key, or a scan of the table for want of one, under its lock.
 *
 * The query must see every row.  The owner of the table may be subject to its
 * policies as well; like a check of a foreign key this is exempt.
 */
static void
check_keys(Conversion *conv)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	KeyColumn  *key = conv->key;
	bool		needs_smallest = key->new_type == conv->snowflake_type;
	SavedRole	saved;
	int64		largest,
				next;
	bool		isnull;
	TimestampTz at;

	if (!needs_smallest && !conv->sets_default)
		return;
	check_name(conv, key->relid, key->table);
	snowflake_convert_become(key->owner, SECURITY_NOFORCE_RLS, &saved);
	snowflake_convert_query(psprintf("SELECT %s AS smallest, %s AS largest FROM %s",
									 needs_smallest ? key_aggregate("min", key) : "NULL",
									 conv->sets_default ? key_aggregate("max", key) : "NULL",
									 key->table), 0, NULL, NULL);
	snowflake_convert_return(&saved);

	if (needs_smallest)
	{
		int64		smallest = DatumGetInt64(snowflake_convert_value(0, "smallest", &isnull));

		if (!isnull && smallest < 0)
			snowflake_convert_refuse(conv, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
									 psprintf("The smallest key is " INT64_FORMAT ", and a snowflake is never negative.",
											  smallest),
									 "A bigint column can hold it.");
	}
	if (!conv->sets_default)
		return;
	largest = DatumGetInt64(snowflake_convert_value(0, "largest", &isnull));
	if (isnull)
		largest = -1;			/* no keys */

	next = next_id(conv);
	if (largest < next)
		return;
	if (snowflake_layout_get_tick(layout, largest) > layout->max_tick)
		snowflake_convert_refuse(conv, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
								 psprintf("The largest key is " INT64_FORMAT ", but the largest snowflake of the layout is " INT64_FORMAT ".",
										  largest, layout->max_id),
								 "Give the rows new keys in another column.");

	at = snowflake_layout_tick_start(layout, snowflake_layout_get_tick(layout, largest));
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("cannot convert column \"%s\" of table \"%s\" to snowflakes",
				   conv->column, key->relname),
			errdetail("The largest key is " INT64_FORMAT ", but the next snowflake is " INT64_FORMAT ".",
					  largest, next),
			at - snowflake_clock_wall() <= USECS_PER_MINUTE ?
			errhint("If it is a snowflake of this layout, run SELECT snowflake_advance('" INT64_FORMAT "'), then convert again.",
					largest) :
			errhint("As a snowflake of this layout it would date from \"%s\". If the keys are of another kind, give the rows new keys in another column.",
					timestamptz_to_str(at)));
}

/*
 * Partitions, on any level, whose bounds are of the key or of a reference to it
 * have been made for other numbers.
 */
static void
warn_of_partitions(Conversion *conv)
{
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (column->bounds_partitions && conv->sets_default)
			ereport(WARNING,
					errmsg("table \"%s\" is partitioned by column \"%s\"",
						   column->relname, column->name),
					errhint("New rows need a partition for snowflakes: snowflake_lower_bound() gives its bounds."));
	}
}

/*
 * A bigint is the default, because it does not rewrite a table with a bigint key,
 * and clients go on reading numbers.  But expressions that are written for a
 * snowflake fail for it, or mean something else.
 */
static void
tell_forms(Conversion *conv)
{
	KeyColumn  *key = conv->key;
	const char *name = quote_identifier(key->name);

	if ((OidIsValid(key->new_type) ? key->new_type : key->type) != INT8OID)
		return;
	ereport(NOTICE,
			conv->dry_run ?
			errmsg("column \"%s\" of table %s would be a bigint, not a snowflake", key->name, key->table) :
			errmsg("column \"%s\" of table %s is a bigint, not a snowflake", key->name, key->table),
			errdetail("Write snowflake_timestamp(%s) for the time, since @ %s is the absolute value, and %s >= snowflake_lower_bound(now() - interval '1 day') for the rows of a period.",
					  name, name, name),
			errhint("With snowflake as the third argument, snowflake_convert_column() makes it a snowflake, and rewrites the table."));
}


/*
 * Convert a column, or with dry_run say how.  Returns the statements.
 *
 * Needs a generator that mints, except for a dry run.
 */
Datum
snowflake_convert_column(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	char	   *schema_name = get_namespace_name(schema);
	Conversion	conv = {0};
	oidvector  *no_arguments = buildoidvector(NULL, 0);
	ListCell   *lc;

	conv.relid = PG_GETARG_OID(0);
	conv.column = pstrdup(NameStr(*PG_GETARG_NAME(1)));
	conv.type = PG_GETARG_OID(2);
	conv.dry_run = PG_GETARG_BOOL(3);

	/* a function that runs can be dropped */
	if (schema_name == NULL)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("the extension snowflake was dropped"));
	conv.schema = pstrdup(quote_identifier(schema_name));
	conv.snowflake_type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
										  CStringGetDatum("snowflake"),
										  ObjectIdGetDatum(schema));
	conv.next_function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										 CStringGetDatum("snowflake_next"),
										 PointerGetDatum(no_arguments),
										 ObjectIdGetDatum(schema));
	if (!OidIsValid(conv.snowflake_type) || !OidIsValid(conv.next_function))
		elog(ERROR, "could not find the objects of the extension in schema %s", conv.schema);

	if (!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(conv.type)))
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("type with OID %u does not exist", conv.type));
	if (conv.type != INT8OID && conv.type != conv.snowflake_type)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("a key cannot be converted to type %s", format_type_be(conv.type)),
				errdetail("Its type can be bigint or snowflake."));
	if (!conv.dry_run)
	{
		PreventCommandIfReadOnly("snowflake_convert_column()");
		snowflake_generator_require("snowflake_convert_column()");
	}

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	do
	{
		collect(&conv);
		snowflake_convert_plan(&conv);
	} while (conv.statements != NIL && snowflake_convert_lock(&conv));

	if (conv.statements == NIL)
		ereport(NOTICE,
				errmsg("column \"%s\" of table %s is already filled with snowflakes",
					   conv.key->name, conv.key->table));
	else
	{
		check_definitions(&conv);
		check_keys(&conv);
		warn_of_partitions(&conv);
		if (!conv.dry_run)
			execute(&conv);
		tell_forms(&conv);
	}

	foreach(lc, conv.statements)
	{
		KeyStatement *statement = lfirst(lc);
		Datum		command = CStringGetTextDatum(statement->command);
		bool		isnull = false;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &command, &isnull);
	}
	SPI_finish();
	return (Datum) 0;
}
