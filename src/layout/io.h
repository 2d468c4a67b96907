/*-------------------------------------------------------------------------
 *
 * io.h
 *	  The check that makes an integer a snowflake.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_IO_H
#define SNOWFLAKE_IO_H

#define SNOWFLAKE_IO_RANGE_DETAIL \
	errdetail("A snowflake is from 0 to " INT64_FORMAT ".", PG_INT64_MAX)

/*
 * Returns an integer as an ID.  A negative one is an error: no layout uses the
 * sign bit.  This is inline because the library of snowflake_public needs it
 * as well, and two libraries share no symbol.
 */
static inline int64
snowflake_io_check_sign(int64 value)
{
	if (unlikely(value < 0))
		ereport(ERROR,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("value \"" INT64_FORMAT "\" is out of range for type %s",
					   value, "snowflake"),
				SNOWFLAKE_IO_RANGE_DETAIL);
	return value;
}

#endif							/* SNOWFLAKE_IO_H */
