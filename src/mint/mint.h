/*-------------------------------------------------------------------------
 *
 * mint.h
 *	  Minting, and why it fails.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_MINT_H
#define SNOWFLAKE_MINT_H

#include "generator/words.h"

/* mint.c */

extern void snowflake_mint_await_opening(const char *function);

/* refusal.c */

extern const char *snowflake_refusal_gate(void);
extern const char *snowflake_refusal_advice(void);
extern int64 snowflake_refusal_wait_usec(int64 excess_usec);
extern bool snowflake_refusal_stays_closed(SnowflakeGate gate);
extern void snowflake_refusal_in_recovery(const char *function);
extern void snowflake_refusal_closed(SnowflakeGate gate);
pg_noreturn extern void snowflake_refusal_ended(void);
pg_noreturn extern void snowflake_refusal_ahead(int64 excess_usec, int64 waited_usec);
pg_noreturn extern void snowflake_refusal_unjudged(int64 excess_usec);
pg_noreturn extern void snowflake_refusal_unreserved(void);

#endif							/* SNOWFLAKE_MINT_H */
