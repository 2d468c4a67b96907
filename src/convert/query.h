/*-------------------------------------------------------------------------
 *
 * query.h
 *	  Queries of a conversion, whose results are read by the columns' names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_CONVERT_QUERY_H
#define SNOWFLAKE_CONVERT_QUERY_H

extern void snowflake_convert_query(const char *sql, int nargs, Oid *types,
									Datum *values);
extern Datum snowflake_convert_value(uint64 row, const char *name, bool *isnull);
extern Oid	snowflake_convert_oid(uint64 row, const char *name);
extern bool snowflake_convert_bool(uint64 row, const char *name);
extern char snowflake_convert_char(uint64 row, const char *name);
extern char *snowflake_convert_text(uint64 row, const char *name);

#endif							/* SNOWFLAKE_CONVERT_QUERY_H */
