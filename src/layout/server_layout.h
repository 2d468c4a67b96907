/*-------------------------------------------------------------------------
 *
 * server_layout.h
 *	  The layout of the snowflakes that this server mints.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_SERVER_LAYOUT_H
#define SNOWFLAKE_SERVER_LAYOUT_H

#include "layout/layout.h"

/*
 * snowflake.layout, parsed; only its assign hook writes it.  If the library
 * was preloaded, it is fixed for the life of the server.
 */
extern SnowflakeLayout snowflake_server_layout;
extern bool snowflake_layout_is_fixed;

/*
 * snowflake.spread minus one, or 0: the bits of the sequence number that a new
 * tick takes over from the tick before.  Only the assign hook writes it.
 */
extern uint32 snowflake_spread_mask;

extern void snowflake_server_layout_init(void);

#endif							/* SNOWFLAKE_SERVER_LAYOUT_H */
