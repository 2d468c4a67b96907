/*-------------------------------------------------------------------------
 *
 * node_source.h
 *	  Where the node ID comes from.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_NODE_SOURCE_H
#define SNOWFLAKE_NODE_SOURCE_H

#include "generator/generator.h"

extern const char *snowflake_node_source_name(void);

extern void snowflake_node_source_wanted(SnowflakeNode *wanted);
extern char *snowflake_node_source_origin(void);
extern const char *snowflake_node_source_settings(void);

#endif							/* SNOWFLAKE_NODE_SOURCE_H */
