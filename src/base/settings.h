/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings that need no other part of the library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_SETTINGS_H
#define SNOWFLAKE_SETTINGS_H

#include "utils/guc.h"

/* The largest value of snowflake.max_ahead, in seconds */
#define SNOWFLAKE_MOST_AHEAD_S	(10 * 365 * 24 * 60 * 60)

extern char *snowflake_database;
extern int	snowflake_max_lead_ms;
extern int	snowflake_max_wait_ms;
extern int	snowflake_reservation_ms;
extern int	snowflake_max_jump_ms;
extern int	snowflake_jump_patience_ms;
extern int	snowflake_max_ahead_s;

extern void snowflake_settings_init(void);
extern GucContext snowflake_settings_fixed(void);
extern char *snowflake_settings_origin(const char *name);
extern int	snowflake_settings_keeper_wait_ms(void);

#endif							/* SNOWFLAKE_SETTINGS_H */
