/*-------------------------------------------------------------------------
 *
 * gate_text.h
 *	  What the states of the gate mean to people.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_GATE_TEXT_H
#define SNOWFLAKE_GATE_TEXT_H

#include "generator/generator.h"

extern const char *snowflake_gate_reason(SnowflakeGate gate);
extern const char *snowflake_gate_reason_now(void);
extern const char *snowflake_gate_advice(SnowflakeGate gate);
extern const char *snowflake_gate_advice_in_recovery(void);
extern bool snowflake_gate_stays_closed(SnowflakeGate gate);
extern void snowflake_gate_refuse(SnowflakeGate gate);

#endif							/* SNOWFLAKE_GATE_TEXT_H */
