/*-------------------------------------------------------------------------
 *
 * convert.c
 *	  Turn an integer key into one that is filled with snowflakes.
 *
 * Everything is done by ordinary statements, with the rights of the caller, in
 * the caller's transaction; nothing here writes a catalog.  What this adds is
 * knowing which statements: convert_facts.c collects the key column and all
 * columns that hang together with it by inheritance and foreign keys, refuses
 * what cannot be done, and locks.
 *
 * The statements name everything with its schema and run with the caller's
 * search_path, as they would by hand.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "clock.h"
#include "compat.h"
#include "convert.h"
#include "gate.h"
#include "generator.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_convert_column);


/*
 * What will be done
 */

static const char *
new_type_name(Conversion *conv, KeyColumn *column)
{
	return column->new_type == INT8OID ? "bigint" :
		psprintf("%s.snowflake", conv->schema);
}

static void
add_statement(Conversion *conv, char *statement)
{
	conv->statements = lappend(conv->statements, statement);
}

static void
add_notice(Conversion *conv, char *notice)
{
	conv->notices = lappend(conv->notices, notice);
}

/* The first column of each table to be altered: the key, then the others. */
static List *
altered_tables(Conversion *conv)
{
	List	   *tables = NIL;
	Oid			last = InvalidOid;
	bool		key_first = snowflake_alters(conv, conv->key);
	ListCell   *lc;

	if (key_first)
		tables = lappend(tables, conv->key);
	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (!snowflake_alters(conv, column) || column->relid == last ||
			(key_first && column->relid == conv->relid))
			continue;
		tables = lappend(tables, column);
		last = column->relid;
	}
	return tables;
}

/* One ALTER TABLE for all columns of a table, so that it is rewritten once. */
static void
plan_table(Conversion *conv, KeyColumn *table)
{
	StringInfoData statement;
	ListCell   *lc;

	initStringInfo(&statement);
	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);
		char	   *alter;

		if (column->relid != table->relid || !snowflake_alters(conv, column))
			continue;

		alter = psprintf("%s ALTER COLUMN %s", statement.len == 0 ? "" : ",",
						 quote_identifier(column->name));
		if (OidIsValid(column->new_type))
		{
			/* the key's old default might have no cast to the new type */
			if (column->is_key && column->default_expr != NULL)
			{
				appendStringInfo(&statement, "%s DROP DEFAULT", alter);
				alter = psprintf(", ALTER COLUMN %s", quote_identifier(column->name));
			}
			appendStringInfo(&statement, "%s TYPE %s", alter,
							 new_type_name(conv, column));
			alter = psprintf(", ALTER COLUMN %s", quote_identifier(column->name));
			add_notice(conv, psprintf("column \"%s\" of table %s was %s and is %s now: its rows were written anew",
									  column->name, column->table, column->type_name,
									  new_type_name(conv, column)));
		}
		if (column->is_key)
			appendStringInfo(&statement, "%s SET DEFAULT %s.snowflake_next()",
							 alter, conv->schema);
	}
	add_statement(conv, psprintf("ALTER TABLE %s%s", table->table, statement.data));
}

/*
 * Write down the statements, and what they do in words.  No statement at all:
 * there is nothing to do.
 */
static void
plan(Conversion *conv)
{
	List	   *tables = altered_tables(conv);
	StringInfoData lock_list;
	ListCell   *lc,
			   *lc2;

	conv->statements = conv->notices = NIL;
	if (tables == NIL)
		return;

	initStringInfo(&lock_list);
	foreach(lc, tables)
		appendStringInfo(&lock_list, "%s%s", lock_list.len == 0 ? "" : ", ",
						 ((KeyColumn *) lfirst(lc))->table);
	add_statement(conv, psprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE",
								 lock_list.data));

	/*
	 * An identity goes before everything else: it allows neither the type nor
	 * a default.  A partition that has no sequence of its own shares its
	 * parent's identity, and loses it with its parent.
	 */
	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		foreach(lc2, conv->columns)
		{
			KeyColumn  *column = lfirst(lc2);

			if (!column->is_key || column->relid != sequence->identity_of)
				continue;
			add_statement(conv, psprintf("ALTER TABLE %s ALTER COLUMN %s DROP IDENTITY",
										 column->table, quote_identifier(column->name)));
			add_notice(conv, psprintf("column \"%s\" of table %s was an identity, whose sequence %s is dropped",
									  column->name, column->table, sequence->name));
		}
	}

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		/* most partitions have their parent's default */
		if (column->is_key && column->default_expr != NULL && !column->fills_itself &&
			(column->is_top || conv->key->default_expr == NULL ||
			 strcmp(column->default_expr, conv->key->default_expr) != 0))
			add_notice(conv, psprintf("column \"%s\" of table %s had the default %s",
									  column->name, column->table, column->default_expr));
	}

	foreach(lc, tables)
		plan_table(conv, lfirst(lc));
	if (conv->sets_default)
		add_notice(conv, psprintf("column \"%s\" of table %s has the default %s.snowflake_next() now",
								  conv->key->name, conv->key->table, conv->schema));

	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		if (OidIsValid(sequence->identity_of))
			continue;
		if (snowflake_drops(sequence))
		{
			add_statement(conv, psprintf("DROP SEQUENCE %s", sequence->name));
			add_notice(conv, psprintf("sequence %s is dropped", sequence->name));
		}
		else
			add_notice(conv, psprintf("sequence %s is kept: %s", sequence->name,
									  sequence->dependents ?
									  psprintf("it is used by %s", sequence->dependents) :
									  !sequence->is_owned ? "the column does not own it" :
									  "no default of the column used it"));
	}
}

static void
execute(Conversion *conv)
{
	ListCell   *lc;

	/* the first of them takes the locks, which are held already */
	for_each_from(lc, conv->statements, 1)
	{
		int			result = SPI_execute(lfirst(lc), false, 0);

		if (result != SPI_OK_UTILITY)
			elog(ERROR, "statement failed: %s: %s", SPI_result_code_string(result),
				 (char *) lfirst(lc));
	}
	foreach(lc, conv->notices)
		ereport(NOTICE, errmsg_internal("%s", (char *) lfirst(lc)));
}


/*
 * The keys that are there
 */

/* A column of the first row of a result; columns count from 1. */
static int64
bigint_value(int column, bool *isnull)
{
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									   column, isnull));
}

/*
 * The ID that would be minted next.  For a dry run on a server that does not
 * mint, about that.
 */
static int64
next_id(Conversion *conv)
{
	bool		isnull;

	if (conv->dry_run &&
		(!snowflake_generator_exists() || snowflake_gate() != GATE_OPEN))
	{
		ereport(WARNING,
				errmsg("nothing can be minted at present"),
				errdetail("The gate is %s.",
						  snowflake_gate_reason_now()),
				errhint("The conversion itself needs a server that mints: SELECT snowflake_next();"));
		return snowflake_id_until(&snowflake_server_layout, snowflake_wall_clock());
	}
	snowflake_query(psprintf("SELECT %s.snowflake_next()::pg_catalog.int8", conv->schema),
					0, NULL, NULL);
	return bigint_value(1, &isnull);
}

/*
 * Check that the keys present are below all that will be minted, and that
 * something can be.
 *
 * The query must see every row.  The caller owns the table, but may have forced
 * its policies on himself; like a check of a foreign key this is exempt.
 */
static void
check_keys(Conversion *conv)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	KeyColumn  *key = conv->key;
	const char *name = quote_identifier(key->name);
	const char *schema = key->type == conv->snowflake_type ? conv->schema : "pg_catalog";
	Oid			user;
	int			context;
	int64		smallest,
				largest,
				next;
	bool		isnull;
	TimestampTz at;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(user, context | SECURITY_NOFORCE_RLS);
	snowflake_query(psprintf("SELECT %s.min(%s)::pg_catalog.int8, %s.max(%s)::pg_catalog.int8 FROM %s",
							 schema, name, schema, name, key->table), 0, NULL, NULL);
	SetUserIdAndSecContext(user, context);

	smallest = bigint_value(1, &isnull);
	largest = bigint_value(2, &isnull);
	if (isnull)
		smallest = largest = 0; /* no keys */

	if (smallest < 0 && key->new_type == conv->snowflake_type)
		snowflake_refuse(conv, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
						 psprintf("The smallest key is " INT64_FORMAT ", and a snowflake is never negative.", smallest),
						 "As a bigint the column can keep it.");

	if (key->bounds_partitions)
		ereport(WARNING,
				errmsg("table \"%s\" is partitioned by column \"%s\"",
					   key->relname, conv->column),
				errhint("New rows need a partition that takes snowflakes: snowflake_lower_bound() gives bounds."));

	next = next_id(conv);
	if (largest < next)
		return;
	if (snowflake_get_tick(layout, largest) > layout->max_tick)
		snowflake_refuse(conv, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
						 psprintf("The largest key is " INT64_FORMAT ", but the largest snowflake of the layout is " INT64_FORMAT ".",
								  largest, layout->max_id),
						 "Give the rows keys in a new column: doc/migrating.md shows how.");

	at = snowflake_tick_start(layout, snowflake_get_tick(layout, largest));
	ereport(ERROR,
			errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("cannot convert column \"%s\" of table \"%s\" to snowflakes",
				   conv->column, key->relname),
			errdetail("The largest key is " INT64_FORMAT ", but the next snowflake is " INT64_FORMAT ".",
					  largest, next),
			at - snowflake_wall_clock() <= USECS_PER_MINUTE ?
			errhint("If it is a snowflake of this layout: SELECT snowflake_advance('" INT64_FORMAT "');",
					largest) :
			errhint("As a snowflake of this layout it would be of \"%s\". If the keys are of another kind, give the rows keys in a new column: doc/migrating.md shows how.",
					timestamptz_to_str(at)));
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
	Conversion	conv = {0};
	oidvector  *no_arguments = buildoidvector(NULL, 0);
	ListCell   *lc;

	conv.relid = PG_GETARG_OID(0);
	conv.column = pstrdup(NameStr(*PG_GETARG_NAME(1)));
	conv.type = PG_GETARG_OID(2);
	conv.dry_run = PG_GETARG_BOOL(3);
	conv.schema = pstrdup(quote_identifier(get_namespace_name(schema)));
	conv.snowflake_type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
										  CStringGetDatum("snowflake"),
										  ObjectIdGetDatum(schema));
	conv.next_function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										 CStringGetDatum("snowflake_next"),
										 PointerGetDatum(no_arguments),
										 ObjectIdGetDatum(schema));
	if (!OidIsValid(conv.snowflake_type) || !OidIsValid(conv.next_function))
		elog(ERROR, "could not find the objects of the extension in schema %s", conv.schema);

	if (conv.type != INT8OID && conv.type != conv.snowflake_type)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("a key cannot be converted to type %s", format_type_be(conv.type)),
				errdetail("Its type can be bigint or snowflake."));
	if (!conv.dry_run)
	{
		PreventCommandIfReadOnly("snowflake_convert_column()");
		snowflake_require_generator("snowflake_convert_column()");
	}

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	do
	{
		snowflake_collect(&conv);
		plan(&conv);
	} while (conv.statements != NIL && snowflake_lock_collected(&conv));

	if (conv.statements == NIL)
		ereport(NOTICE,
				errmsg("column \"%s\" of table %s is filled with snowflakes already",
					   conv.key->name, conv.key->table));
	else
	{
		check_keys(&conv);
		if (!conv.dry_run)
			execute(&conv);
	}

	foreach(lc, conv.statements)
	{
		Datum		statement = CStringGetTextDatum(lfirst(lc));
		bool		isnull = false;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &statement, &isnull);
	}
	SPI_finish();
	return (Datum) 0;
}
