/*-------------------------------------------------------------------------
 *
 * keeper.h
 *	  The background worker that keeps the reservation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEEPER_H
#define SNOWFLAKE_KEEPER_H

extern void snowflake_keeper_init(void);
extern bool snowflake_keeper_is_workerless(void);
extern PGDLLEXPORT void snowflake_keeper_main(Datum main_arg);

#endif							/* SNOWFLAKE_KEEPER_H */
