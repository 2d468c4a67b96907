/*-------------------------------------------------------------------------
 *
 * io.c
 *	  The type snowflake: input and output, and the casts that can fail.
 *
 * A snowflake is an int8 from 0 to 2^63-1, and the functions of int8 are used
 * through the implicit cast to bigint, or named in the SQL script.  This file has
 * the functions that differ.  Output is a wrapper here because JSON and logical
 * replication look it up for each value, and fmgr_info() finds an internal function
 * that has another name in SQL by a linear search.
 *
 * The text form is decimal digits only.  An ID in another form that int8 takes, with spaces, a
 * sign, underscores or in hexadecimal, has passed through a program that takes it for a number,
 * and that deserves an error before it is rounded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "libpq/pqformat.h"
#include "nodes/nodes.h"
#include "utils/fmgrprotos.h"

#include "base/compat.h"
#include "layout/io.h"

PG_FUNCTION_INFO_V1(snowflake_in);
PG_FUNCTION_INFO_V1(snowflake_out);
PG_FUNCTION_INFO_V1(snowflake_recv);
PG_FUNCTION_INFO_V1(snowflake_send);
PG_FUNCTION_INFO_V1(snowflake_from_int2);
PG_FUNCTION_INFO_V1(snowflake_from_int4);
PG_FUNCTION_INFO_V1(snowflake_from_int8);

Datum
snowflake_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);
	const char *digits = text[0] == '-' ? text + 1 : text;
	int64		value = 0;
	bool		overflow = false;

	if (digits[0] == '\0' || strspn(digits, "0123456789") != strlen(digits))
		ereturn(fcinfo->context, (Datum) 0,
				errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				errmsg("invalid input syntax for type %s: \"%s\"",
					   "snowflake", text),
				errdetail("A snowflake is written in decimal digits only."),
				strpbrk(digits, "-:") == NULL ? 0 :
				errhint("The first snowflake of a time is snowflake_lower_bound('%s'). To filter by time, compare the time of the ID: @@ id >= '%s'.",
						text, text));

	for (const char *p = digits; *p != '\0' && !overflow; p++)
		overflow = pg_mul_s64_overflow(value, 10, &value) ||
			pg_add_s64_overflow(value, *p - '0', &value);

	if (overflow || text[0] == '-')
		ereturn(fcinfo->context, (Datum) 0,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("value \"%s\" is out of range for type %s",
					   text, "snowflake"),
				SNOWFLAKE_IO_RANGE_DETAIL);

	PG_RETURN_INT64(value);
}

Datum
snowflake_out(PG_FUNCTION_ARGS)
{
	return int8out(fcinfo);
}

/* The binary form is that of int8. */
Datum
snowflake_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);

	PG_RETURN_INT64(snowflake_io_check_sign(pq_getmsgint64(buf)));
}

Datum
snowflake_send(PG_FUNCTION_ARGS)
{
	return int8send(fcinfo);
}

Datum
snowflake_from_int2(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_io_check_sign(PG_GETARG_INT16(0)));
}

Datum
snowflake_from_int4(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_io_check_sign(PG_GETARG_INT32(0)));
}

Datum
snowflake_from_int8(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_io_check_sign(PG_GETARG_INT64(0)));
}
