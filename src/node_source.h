/*-------------------------------------------------------------------------
 *
 * node_source.h
 *	  Where the node ID comes from.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_NODE_SOURCE_H
#define SNOWFLAKE_NODE_SOURCE_H

#include "generator.h"

typedef enum SnowflakeNodeSource
{
	NODE_FROM_SETTING,			/* snowflake.node_id */
	NODE_FROM_HOSTNAME,			/* the number at the end of the host's name */
	NODE_FROM_ADDRESS,			/* the low bits of the host's address */
	NODE_FROM_LEASE				/* from a coordinator: see lease.c */
} SnowflakeNodeSource;

/* The node ID with which to mint, and how far. */
typedef struct SnowflakeNode
{
	SnowflakeGate obstacle;		/* GATE_OPEN if there is a node ID to mint
								 * with */
	int32		node;			/* -1: there is none */
	uint32		grant;			/* its number, if it is leased; otherwise 0 */
	uint64		first;			/* smallest and largest position to be issued */
	uint64		end;
} SnowflakeNode;

extern const char *snowflake_node_source_parse(const char *text,
											   SnowflakeNodeSource *source);
extern const char *snowflake_node_source_name(void);
extern char *snowflake_coordinator_kind(const char *url);

extern void snowflake_node_wanted(SnowflakeNode *wanted);
extern char *snowflake_node_origin(void);

#endif							/* SNOWFLAKE_NODE_SOURCE_H */
