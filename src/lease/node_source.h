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

extern void snowflake_node_source_init(void);

/* Everybody's part */
extern const char *snowflake_node_source_name(void);
extern bool snowflake_node_source_is_host(void);
extern void snowflake_node_source_wanted(SnowflakeNode *wanted);
extern char *snowflake_node_source_origin(void);
extern const char *snowflake_node_source_settings(void);

/* The keeper's part */
extern void snowflake_node_source_determine(SnowflakeNode *wanted);

#endif							/* SNOWFLAKE_NODE_SOURCE_H */
