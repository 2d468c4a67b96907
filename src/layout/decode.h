/*-------------------------------------------------------------------------
 *
 * decode.h
 *	  Arguments of the decoding functions, and of those that make IDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_DECODE_H
#define SNOWFLAKE_DECODE_H

#include "fmgr.h"

#include "layout/layout.h"

extern const SnowflakeLayout *snowflake_decode_get_layout(FunctionCallInfo fcinfo,
														  int argno);
extern void snowflake_decode_check_part(const char *name, int32 value, int32 max);

#endif							/* SNOWFLAKE_DECODE_H */
