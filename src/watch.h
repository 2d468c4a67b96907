/*-------------------------------------------------------------------------
 *
 * watch.h
 *	  What the keeper warns of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_WATCH_H
#define SNOWFLAKE_WATCH_H

#include "datatype/timestamp.h"

/* This long before the layout ends somebody should know. */
#define SNOWFLAKE_LAYOUT_ENDS_SOON_USEC	(365 * USECS_PER_DAY)

extern long snowflake_watch(void);

#endif							/* SNOWFLAKE_WATCH_H */
