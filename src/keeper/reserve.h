/*-------------------------------------------------------------------------
 *
 * reserve.h
 *	  What the keeper does with the reservation and the gate.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_RESERVE_H
#define SNOWFLAKE_RESERVE_H

#include "generator/generator.h"

extern void snowflake_reserve_open_gate(const SnowflakeNode *wanted, uint32 requests,
										TimestampTz now);
extern void snowflake_reserve_reopen_afresh(const SnowflakeNode *wanted, TimestampTz now);
extern void snowflake_reserve_more(const SnowflakeView *view,
								   const SnowflakeNode *wanted, TimestampTz now);
extern bool snowflake_reserve_is_too_far(const SnowflakeView *view,
										 TimestampTz now);
extern void snowflake_reserve_store_end(void);

#endif							/* SNOWFLAKE_RESERVE_H */
