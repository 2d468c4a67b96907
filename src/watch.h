/*-------------------------------------------------------------------------
 *
 * watch.h
 *	  What the keeper warns of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_WATCH_H
#define SNOWFLAKE_WATCH_H

extern long snowflake_watch(void);

#endif							/* SNOWFLAKE_WATCH_H */
