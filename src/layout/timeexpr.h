/*-------------------------------------------------------------------------
 *
 * timeexpr.h
 *	  The time of an ID, as an expression says it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_TIMEEXPR_H
#define SNOWFLAKE_TIMEEXPR_H

#include "nodes/pathnodes.h"

/* A call that decodes the time of an ID */
typedef struct SnowflakeDecodedId
{
	Oid			function;
	Node	   *id;
	Node	   *layout;			/* NULL: the server's */
} SnowflakeDecodedId;

/* What an expression says of the time of an ID */
typedef struct SnowflakeTimeOfId
{
	SnowflakeDecodedId decoded;
	bool		is_local;		/* a timestamp or date of a time zone, not an
								 * instant */
	Node	   *zone;			/* which, or that in which it is truncated;
								 * NULL: the session's */
	const char *unit;			/* that to which it is truncated, NULL if it
								 * is not */
	bool		is_year;		/* it is the number of its year */
} SnowflakeTimeOfId;

extern Oid	snowflake_timeexpr_opfamily(void);
extern Node *snowflake_timeexpr_strip(Node *node);
extern bool snowflake_timeexpr_must_be_evaluated_once(Node *node);
extern bool snowflake_timeexpr_read(Node *node, SnowflakeTimeOfId *time);
extern bool snowflake_timeexpr_ascends(Node *node, SnowflakeDecodedId *decoded);
extern Node *snowflake_timeexpr_text(const char *text);
extern Oid	snowflake_timeexpr_function(const SnowflakeDecodedId *decoded, const char *name,
										Oid first, Oid second, Oid third);

#endif							/* SNOWFLAKE_TIMEEXPR_H */
