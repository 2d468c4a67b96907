/*-------------------------------------------------------------------------
 *
 * lessee.h
 *	  The background worker that leases a node ID.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LESSEE_H
#define SNOWFLAKE_LESSEE_H

extern void snowflake_lessee_init(void);
extern bool snowflake_lessee_start(void);
extern PGDLLEXPORT void snowflake_lessee_main(Datum main_arg);

#endif							/* SNOWFLAKE_LESSEE_H */
