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
extern int64 snowflake_last_id;

extern void snowflake_last_id_init(void);

#endif							/* SNOWFLAKE_LAST_ID_H */
