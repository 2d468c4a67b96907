/*-------------------------------------------------------------------------
 *
 * query.c
 *	  Queries of a conversion, whose results are read by the columns' names.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/snapmgr.h"

#include "convert/query.h"

/*
 * Run a query with a snapshot of its own; the result is in SPI_tuptable.  It
 * sees what is committed now, even if the transaction's own snapshot is older.
 */
void
snowflake_convert_query(const char *sql, int nargs, Oid *types, Datum *values)
{
	SPIPlanPtr	plan = SPI_prepare(sql, nargs, types);

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	if (SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(),
							 InvalidSnapshot, true, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "query failed: %s", sql);
	SPI_freeplan(plan);
}

static int
column_number(const char *name)
{
	int			number = SPI_fnumber(SPI_tuptable->tupdesc, name);

	if (number <= 0)
		elog(ERROR, "query has no column \"%s\"", name);
	return number;
}

/* A value of the result; *isnull may not be NULL. */
Datum
snowflake_convert_value(uint64 row, const char *name, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc,
						 column_number(name), isnull);
}

/* InvalidOid if it is null */
Oid
snowflake_convert_oid(uint64 row, const char *name)
{
	bool		isnull;
	Datum		datum = snowflake_convert_value(row, name, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(datum);
}

/* false if it is null */
bool
snowflake_convert_bool(uint64 row, const char *name)
{
	bool		isnull;
	Datum		datum = snowflake_convert_value(row, name, &isnull);

	return !isnull && DatumGetBool(datum);
}

/* '\0' if it is null */
char
snowflake_convert_char(uint64 row, const char *name)
{
	bool		isnull;
	Datum		datum = snowflake_convert_value(row, name, &isnull);

	return isnull ? '\0' : DatumGetChar(datum);
}

/* A copy of any value as text; NULL if it is null. */
char *
snowflake_convert_text(uint64 row, const char *name)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc,
						column_number(name));
}
