/*-------------------------------------------------------------------------
 *
 * refusal.h
 *	  The errors of mints that fail, and the advice of the status.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_REFUSAL_H
#define SNOWFLAKE_REFUSAL_H

#include "generator/words.h"

extern void snowflake_refusal_in_recovery(const char *function);
extern void snowflake_refusal_closed(SnowflakeGate gate);
pg_noreturn extern void snowflake_refusal_ended(void);
pg_noreturn extern void snowflake_refusal_ahead(int64 excess_usec, int64 waited_usec);
pg_noreturn extern void snowflake_refusal_unjudged(int64 excess_usec);
pg_noreturn extern void snowflake_refusal_unreserved(void);
extern const char *snowflake_refusal_advice(void);

#endif							/* SNOWFLAKE_REFUSAL_H */
