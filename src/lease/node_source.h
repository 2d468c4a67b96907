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

/* node_source.c: the setting, the host, or a lease */

extern void snowflake_node_source_init(void);

/* Everybody's part */
extern const char *snowflake_node_source_name(void);
extern bool snowflake_node_source_is_host(void);
extern void snowflake_node_source_wanted(SnowflakeNode *wanted);
extern char *snowflake_node_source_origin(void);
extern const char *snowflake_node_source_settings(void);

/* The keeper's part */
extern void snowflake_node_source_determine(SnowflakeNode *wanted);

/* host_number.c: the number in a host's name or addresses */

extern int32 snowflake_host_number_of_name(char *text, size_t size);
extern int32 snowflake_host_number_of_addresses(const char *named, char *text, size_t size);

#endif							/* SNOWFLAKE_NODE_SOURCE_H */
