/*-------------------------------------------------------------------------
 *
 * keeper_transaction.h
 *	  The keeper's transactions, whose commits are durable or errors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEEPER_TRANSACTION_H
#define SNOWFLAKE_KEEPER_TRANSACTION_H

extern void snowflake_keeper_transaction_init(void);
extern void snowflake_keeper_transaction_begin(const char *activity);
extern void snowflake_keeper_transaction_commit(void);
extern void snowflake_keeper_transaction_wait_for_no_standby(void);

#endif							/* SNOWFLAKE_KEEPER_TRANSACTION_H */
