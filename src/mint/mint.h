/*-------------------------------------------------------------------------
 *
 * mint.h
 *	  Minting.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_MINT_H
#define SNOWFLAKE_MINT_H

extern int64 snowflake_mint(const char *function);
extern void snowflake_mint_await_opening(const char *function);

#endif							/* SNOWFLAKE_MINT_H */
