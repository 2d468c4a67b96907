/*-------------------------------------------------------------------------
 *
 * row.h
 *	  The one row of a view that a C function makes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_ROW_H
#define SNOWFLAKE_ROW_H

#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "fmgr.h"

/* A column, as the view that selects it has to declare it. */
typedef struct SnowflakeColumn
{
	const char *name;
	Oid			type;
} SnowflakeColumn;

/* A row under construction: a column is null until it is put. */
typedef struct SnowflakeRow
{
	TupleDesc	tupdesc;
	Datum	   *values;
	bool	   *nulls;
} SnowflakeRow;

extern void snowflake_row_begin(SnowflakeRow *row, FunctionCallInfo fcinfo,
								const SnowflakeColumn *columns, int ncolumns);
extern void snowflake_row_put(SnowflakeRow *row, int column, Datum value);
extern void snowflake_row_put_text(SnowflakeRow *row, int column, const char *text);
extern void snowflake_row_put_interval(SnowflakeRow *row, int column, int64 usec);
extern Datum snowflake_row_end(const SnowflakeRow *row);

#endif							/* SNOWFLAKE_ROW_H */
