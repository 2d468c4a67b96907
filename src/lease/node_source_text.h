/*-------------------------------------------------------------------------
 *
 * node_source_text.h
 *	  What may be said of where the node ID comes from.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_NODE_SOURCE_TEXT_H
#define SNOWFLAKE_NODE_SOURCE_TEXT_H

typedef enum SnowflakeNodeSource
{
	NODE_FROM_SETTING,			/* snowflake.node_id */
	NODE_FROM_HOSTNAME,			/* the number at the end of the host's name */
	NODE_FROM_ADDRESS,			/* the low bits of the host's address */
	NODE_FROM_LEASE				/* from a coordinator: see lease.c */
} SnowflakeNodeSource;

extern const char *snowflake_node_source_parse(const char *text,
											   SnowflakeNodeSource *source);
extern const char *snowflake_node_source_coordinator(const char *url);

#endif							/* SNOWFLAKE_NODE_SOURCE_TEXT_H */
