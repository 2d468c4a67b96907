/*-------------------------------------------------------------------------
 *
 * watch.h
 *	  What the keeper warns of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_WATCH_H
#define SNOWFLAKE_WATCH_H

#include "clock.h"

extern long snowflake_watch(const SnowflakeVerdict *verdict);

#endif							/* SNOWFLAKE_WATCH_H */
