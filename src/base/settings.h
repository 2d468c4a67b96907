/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The extension's settings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_SETTINGS_H
#define SNOWFLAKE_SETTINGS_H

#include "layout/layout.h"
#include "lease/node_source_text.h"

/* For every message about a text that is no layout */
#define SNOWFLAKE_LAYOUT_HINT \
	"A layout is a preset, such as twitter, or fields and an epoch, such as time:41 node:10 sequence:12 epoch:2025-01-01T00:00:00Z."

extern int	snowflake_node_id;	/* -1: unset */
extern SnowflakeNodeSource snowflake_node_source;
extern char *snowflake_node_source_text;	/* the URL, if that is a lease */
extern int	snowflake_lease_ms;
extern char *snowflake_database;
extern int	snowflake_max_lead_ms;
extern int	snowflake_max_wait_ms;
extern int	snowflake_reservation_ms;
extern int	snowflake_max_jump_ms;
extern int	snowflake_jump_patience_ms;
extern char *snowflake_kept_in;
extern char *snowflake_public_key_file;

/*
 * snowflake.spread less one, or 0: what of the sequence a new tick takes over from
 * the one before.  Only the assign hook writes it.
 */
extern uint32 snowflake_spread_mask;

/*
 * snowflake.layout, parsed; only its assign hook writes it.  Fixed for the life
 * of the server if the library was preloaded, so that it may go into plans.
 */
extern SnowflakeLayout snowflake_server_layout;
extern bool snowflake_layout_is_fixed;

extern void snowflake_settings_init(void);
extern char *snowflake_settings_origin(const char *name);
extern int32 snowflake_next_lease_node(int32 node);

#endif							/* SNOWFLAKE_SETTINGS_H */
