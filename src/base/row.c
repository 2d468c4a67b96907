/*-------------------------------------------------------------------------
 *
 * row.c
 *	  The one row of a view that a C function makes.
 *
 * The columns are named twice, in C and in the view, which casts them where it
 * has a better type.  The function is declared to return a record, so each
 * caller says what it expects: that is compared before a value is put.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/row.h"

/*
 * Begin a row of these columns, all null.  An error if the call expects other
 * columns.
 */
void
snowflake_row_begin(SnowflakeRow *row, FunctionCallInfo fcinfo,
					const SnowflakeColumn *columns, int ncolumns)
{
	if (get_call_result_type(fcinfo, NULL, &row->tupdesc) != TYPEFUNC_COMPOSITE)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("function returning record called in context that cannot accept type record"));
	if (row->tupdesc->natts != ncolumns)
		ereport(ERROR,
				errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("the function returns %d columns, but the query expects %d",
					   ncolumns, row->tupdesc->natts));
	for (int i = 0; i < ncolumns; i++)
	{
		Oid			expected = TupleDescAttr(row->tupdesc, i)->atttypid;

		if (expected != columns[i].type)
			ereport(ERROR,
					errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("the function returns type %s for column \"%s\", but the query expects type %s",
						   format_type_be(columns[i].type), columns[i].name,
						   format_type_be(expected)));
	}
	row->values = palloc0(ncolumns * sizeof(Datum));
	row->nulls = palloc(ncolumns * sizeof(bool));
	memset(row->nulls, true, ncolumns * sizeof(bool));
}

/* Put the value of a column. */
void
snowflake_row_put(SnowflakeRow *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

/* Put a text; NULL stays null. */
void
snowflake_row_put_text(SnowflakeRow *row, int column, const char *text)
{
	if (text != NULL)
		snowflake_row_put(row, column, CStringGetTextDatum(text));
}

/* Put a length of time. */
void
snowflake_row_put_interval(SnowflakeRow *row, int column, int64 usec)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usec;
	snowflake_row_put(row, column, IntervalPGetDatum(interval));
}

/* The row, for the function to return. */
Datum
snowflake_row_end(const SnowflakeRow *row)
{
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row->tupdesc),
											 row->values, row->nulls));
}
