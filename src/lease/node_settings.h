/*-------------------------------------------------------------------------
 *
 * node_settings.h
 *	  Where the node ID comes from, and its settings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_NODE_SETTINGS_H
#define SNOWFLAKE_NODE_SETTINGS_H

#include "generator/generator.h"

typedef enum SnowflakeNodeSource
{
	NODE_FROM_SETTING,			/* snowflake.node_id */
	NODE_FROM_HOSTNAME,			/* the number at the end of the host's name */
	NODE_FROM_ADDRESS,			/* the low bits of the host's address, or an
								 * interface's */
	NODE_FROM_LEASE				/* from a coordinator: see lease.c */
} SnowflakeNodeSource;

extern int	snowflake_node_id;	/* -1: unset */
extern SnowflakeNodeSource snowflake_node_source;
extern char *snowflake_node_source_text;	/* the URL, if that is a lease;
											 * after a colon, an interface */
extern int	snowflake_lease_ms;

extern void snowflake_node_settings_init(void);
extern const char *snowflake_node_settings_coordinator(const char *url);
extern int32 snowflake_node_settings_next_lease(int32 node);
extern int64 snowflake_node_settings_lease_ticks(void);

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

#endif							/* SNOWFLAKE_NODE_SETTINGS_H */
