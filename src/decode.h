/*-------------------------------------------------------------------------
 *
 * decode.h
 *	  The layout argument of the decoding functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_DECODE_H
#define SNOWFLAKE_DECODE_H

#include "fmgr.h"

#include "layout.h"

extern const SnowflakeLayout *snowflake_get_layout(FunctionCallInfo fcinfo,
												   int argno);

#endif							/* SNOWFLAKE_DECODE_H */
