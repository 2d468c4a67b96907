/*-------------------------------------------------------------------------
 *
 * last_id.h
 *	  The ID that this session minted last.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LAST_ID_H
#define SNOWFLAKE_LAST_ID_H

/* -1 if there is none.  Minting sets it. */
extern int64 snowflake_current_id;

extern void snowflake_current_init(void);

#endif							/* SNOWFLAKE_LAST_ID_H */
