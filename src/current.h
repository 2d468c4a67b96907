/*-------------------------------------------------------------------------
 *
 * current.h
 *	  The ID that this session minted last.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_CURRENT_H
#define SNOWFLAKE_CURRENT_H

/* -1 if there is none.  Minting sets it. */
extern int64 snowflake_current_id;

extern void snowflake_current_init(void);

#endif							/* SNOWFLAKE_CURRENT_H */
