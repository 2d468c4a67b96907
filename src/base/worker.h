/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  What the library's background workers have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_WORKER_H
#define SNOWFLAKE_WORKER_H

#include "postmaster/bgworker.h"

extern void snowflake_worker_describe(BackgroundWorker *worker, const char *name,
									  const char *function);
extern bool snowflake_worker_is_registered(const char *name);
extern void snowflake_worker_pin_settings(void);

extern bool snowflake_worker_sleep(int64 until_usec);
extern void snowflake_worker_clean_up(void);

#endif							/* SNOWFLAKE_WORKER_H */
