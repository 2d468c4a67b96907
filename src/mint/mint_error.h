/*-------------------------------------------------------------------------
 *
 * mint_error.h
 *	  Errors of mints that an open gate cannot serve.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_MINT_ERROR_H
#define SNOWFLAKE_MINT_ERROR_H

#include "generator/generator.h"

extern bool snowflake_mint_error_in_old_reservation(const SnowflakeView *view,
													int64 excess_usec);
extern bool snowflake_mint_error_advanced(const SnowflakeView *view);
extern const char *snowflake_mint_error_why_ahead(const SnowflakeView *view);
extern const char *snowflake_mint_error_jumped(bool is_ahead);
extern const char *snowflake_mint_error_what_to_do(const SnowflakeView *view, int64 excess_usec);
extern void snowflake_mint_error_in_recovery(const char *function);
pg_noreturn extern void snowflake_mint_error_ended(void);
pg_noreturn extern void snowflake_mint_error_ahead(int64 excess_usec,
												   int64 waited_usec);
pg_noreturn extern void snowflake_mint_error_unreserved(void);

#endif							/* SNOWFLAKE_MINT_ERROR_H */
