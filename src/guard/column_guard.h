/*-------------------------------------------------------------------------
 *
 * column_guard.h
 *	  No column of the extension's types is dropped along with the extension.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_COLUMN_GUARD_H
#define SNOWFLAKE_COLUMN_GUARD_H

extern void snowflake_column_guard_init(void);

#endif							/* SNOWFLAKE_COLUMN_GUARD_H */
