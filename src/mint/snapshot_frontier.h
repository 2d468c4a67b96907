/*-------------------------------------------------------------------------
 *
 * snapshot_frontier.h
 *	  The frontier, for SQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_SNAPSHOT_FRONTIER_H
#define SNOWFLAKE_SNAPSHOT_FRONTIER_H

extern int64 snowflake_snapshot_frontier_require(const char *function);

#endif							/* SNOWFLAKE_SNAPSHOT_FRONTIER_H */
