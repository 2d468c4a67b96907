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

extern const char *snowflake_gate_text_reason(SnowflakeGate gate);
extern const char *snowflake_gate_text_reason_now(void);
extern const char *snowflake_gate_text_advice(SnowflakeGate gate);
extern const char *snowflake_gate_text_advice_in_recovery(void);
extern bool snowflake_gate_text_stays_closed(SnowflakeGate gate);
extern void snowflake_gate_text_refuse(SnowflakeGate gate);

#endif							/* SNOWFLAKE_GATE_TEXT_H */
