/*-------------------------------------------------------------------------
 *
 * node_settings.h
 *	  The settings of the node ID.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_NODE_SETTINGS_H
#define SNOWFLAKE_NODE_SETTINGS_H

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

#endif							/* SNOWFLAKE_NODE_SETTINGS_H */
