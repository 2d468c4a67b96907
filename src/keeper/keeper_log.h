/*-------------------------------------------------------------------------
 *
 * keeper_log.h
 *	  The keeper's warnings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEEPER_LOG_H
#define SNOWFLAKE_KEEPER_LOG_H

#include "base/clock.h"

extern long snowflake_keeper_log_watch(const SnowflakeVerdict *verdict);

#endif							/* SNOWFLAKE_KEEPER_LOG_H */
