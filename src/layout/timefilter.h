/*-------------------------------------------------------------------------
 *
 * timefilter.h
 *	  Expressions that are the time of an ID.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEFILTER_H
#define SNOWFLAKE_TIMEFILTER_H

#include "nodes/nodes.h"

/* The ID, and the layout or NULL, of which an expression is the time. */
typedef struct SnowflakeDecodedId
{
	Node	   *id;
	Node	   *layout;
} SnowflakeDecodedId;

extern bool snowflake_timefilter_decoded(Node *node, SnowflakeDecodedId *decoded);
extern Node *snowflake_timefilter_strip(Node *node);

#endif							/* SNOWFLAKE_TIMEFILTER_H */
