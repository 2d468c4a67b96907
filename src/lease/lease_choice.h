/*-------------------------------------------------------------------------
 *
 * lease_choice.h
 *	  Which node ID a server takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_LEASE_CHOICE_H
#define SNOWFLAKE_LEASE_CHOICE_H

#include "lease/lease_record.h"

extern int32 snowflake_lease_choice_make(List *records, int64 now_tick, int64 own_tick,
										 int races,
										 const SnowflakeRecord **record,
										 SnowflakeLeaseRecord *parsed);

#endif							/* SNOWFLAKE_LEASE_CHOICE_H */
