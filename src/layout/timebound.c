/*-------------------------------------------------------------------------
 *
 * timebound.c
 *	  What a comparison with a time says of the ID, as conditions in a plan.
 *
 * The bounds are constants, or calls of snowflake_before() and snowflake_until(), which
 * timerange.c computes; and where a local time or a truncated one is compared, calls of
 * snowflake_period_start() and snowflake_period_end() inside of these, which
 * timeperiod.c computes.
 *
 * Each of these returns NULL where it has nothing to say, or the user may not call what it takes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/stratnum.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "layout/timebound.h"
#include "layout/timeperiod.h"
#include "layout/timerange.h"

/*
 * Is that a value that is known before any row is read, and may be evaluated more often than it
 * is written?
 */
bool
snowflake_timebound_is_known_first(Node *value)
{
	return !contain_var_clause(value) && !snowflake_timeexpr_must_be_evaluated_once(value);
}

/*
 * The largest ID before a time, or with "inclusive", not after it: a constant if that can
 * be said already, otherwise a call of snowflake_before() or snowflake_until().  NULL if
 * the user may not call it.
 */
static Node *
make_bound(const SnowflakeTimeContext *context, Node *time, bool inclusive)
{
	Node	   *layout = context->time.decoded.layout;
	List	   *args;
	Oid			function;
	int64		bound;

	if (snowflake_timerange_constant(context->root, time, layout, inclusive, &bound))
		return (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
								  Int64GetDatum(bound), false, FLOAT8PASSBYVAL);

	function = snowflake_timeexpr_function(&context->time.decoded,
										   inclusive ? "snowflake_until" : "snowflake_before",
										   ANYELEMENTOID, layout != NULL ? TEXTOID : InvalidOid,
										   InvalidOid);
	if (!OidIsValid(function))
		return NULL;
	args = list_make1(copyObject(time));
	if (layout != NULL)
		args = lappend(args, copyObject(layout));
	return (Node *) makeFuncExpr(function, INT8OID, args, InvalidOid, exprCollation(layout),
								 COERCE_EXPLICIT_CALL);
}

/* "the ID is after what is before a time", or "... after a time", or NULL */
Node *
snowflake_timebound_lower(const SnowflakeTimeContext *context, Node *time, bool inclusive)
{
	Node	   *bound = make_bound(context, time, inclusive);

	return bound == NULL ? NULL : snowflake_timerange_lower(context->time.decoded.id, bound);
}

/* "the ID is before a time", or "... not after a time", or NULL */
Node *
snowflake_timebound_upper(const SnowflakeTimeContext *context, Node *time, bool inclusive)
{
	Node	   *bound = make_bound(context, time, inclusive);

	return bound == NULL ? NULL : snowflake_timerange_upper(context->time.decoded.id, bound);
}

/* Both of two conditions, in one list as core has them, or NULL if one is not there. */
Node *
snowflake_timebound_both(Node *one, Node *other)
{
	if (one == NULL || other == NULL)
		return NULL;
	return (Node *) make_andclause(list_concat_copy(make_ands_implicit((Expr *) one),
													make_ands_implicit((Expr *) other)));
}

/* "the ID's time is this one", or "... is in this range", or NULL */
Node *
snowflake_timebound_between(const SnowflakeTimeContext *context, Node *time)
{
	return snowflake_timebound_both(snowflake_timebound_lower(context, time, false),
									snowflake_timebound_upper(context, time, true));
}

/* A call of snowflake_period_start() or _end(), or NULL. */
static Node *
make_period(const SnowflakeTimeContext *context, const char *name, Node *time, const char *unit)
{
	Node	   *zone = context->time.zone;
	Oid			function = snowflake_timeexpr_function(&context->time.decoded, name,
													   ANYELEMENTOID, TEXTOID,
													   zone != NULL ? TEXTOID : InvalidOid);
	List	   *args;

	if (!OidIsValid(function))
		return NULL;
	args = list_make1(copyObject(time));
	args = lappend(args, snowflake_timeexpr_text(unit));
	if (zone != NULL)
		args = lappend(args, copyObject(zone));
	return (Node *) makeFuncExpr(function, TIMESTAMPTZOID, args, InvalidOid,
								 DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
}

/* The start of a year as a timestamp, if the value is a number of one, or NULL. */
static Node *
make_year(Node *value)
{
	Const	   *constant = (Const *) value;
	double		year;

	if (!IsA(value, Const) || constant->constisnull)
		return NULL;
	if (constant->consttype == FLOAT8OID)
		year = DatumGetFloat8(constant->constvalue);
	else if (constant->consttype == NUMERICOID)
		year = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
												  constant->constvalue));
	else
		return NULL;
	/* years that every type of time has */
	if (!(year >= 1 && year <= 200000) || year != floor(year))
		return NULL;
	return (Node *) makeConst(TIMESTAMPOID, -1, InvalidOid, sizeof(Timestamp),
							  TimestampGetDatum((date2j((int) year, 1, 1) - POSTGRES_EPOCH_JDATE) *
												USECS_PER_DAY),
							  false, FLOAT8PASSBYVAL);
}

/*
 * Can the time, which is no plain instant, be compared with a value of that type here?  An
 * instant that was truncated is one of the session's time zone if the value is.
 */
static bool
is_comparable(const SnowflakeTimeOfId *time, Oid type)
{
	if (type == TIMESTAMPTZOID)
		return !time->is_local;
	return (type == TIMESTAMPOID || type == DATEOID) && (time->is_local || time->zone == NULL);
}

/* Is that time zone one that gives a range, as far as is known?  NULL is the session's. */
static bool
is_useful_zone(Node *zone)
{
	Const	   *name = (Const *) zone;

	if (zone == NULL)
		return true;
	if (!IsA(zone, Const))
		return snowflake_timebound_is_known_first(zone);
	return !name->constisnull &&
		snowflake_timeperiod_is_zone(TextDatumGetCString(name->constvalue));
}

/*
 * "a time OP value", as a range, where that is no instant, but is in a zone and beside a
 * value that are known; NULL if clocks may be set there.
 */
static Node *
make_known_period_range(const SnowflakeTimeContext *context, StrategyNumber strategy, Node *value,
						const char *unit)
{
	Const	   *zone = (Const *) context->time.zone;
	Const	   *constant = (Const *) value;
	TimestampTz start,
				end;
	Node	   *first;
	Node	   *next;

	if (zone == NULL || !IsA(zone, Const) || !IsA(value, Const) || constant->constisnull ||
		!snowflake_timeperiod_constant(TextDatumGetCString(zone->constvalue),
									   constant->consttype, constant->constvalue, unit,
									   &start, &end))
		return NULL;
	first = (Node *) makeConst(TIMESTAMPTZOID, -1, InvalidOid, sizeof(TimestampTz),
							   TimestampTzGetDatum(start), false, FLOAT8PASSBYVAL);
	next = (Node *) makeConst(TIMESTAMPTZOID, -1, InvalidOid, sizeof(TimestampTz),
							  TimestampTzGetDatum(end), false, FLOAT8PASSBYVAL);
	switch (strategy)
	{
		case BTLessStrategyNumber:
			return snowflake_timebound_upper(context, first, false);
		case BTLessEqualStrategyNumber:
			return snowflake_timebound_upper(context, next, false);
		case BTEqualStrategyNumber:
			return snowflake_timebound_both(snowflake_timebound_lower(context, first, false),
											snowflake_timebound_upper(context, next, false));
		case BTGreaterEqualStrategyNumber:
			return snowflake_timebound_lower(context, first, false);
		default:
			return snowflake_timebound_lower(context, next, false);
	}
}

/*
 * The range that "a time OP value" implies, where that is no instant: a local time, or one
 * that was truncated.  NULL if there is none; "is_exact" is set if it says the same.
 */
static Node *
make_period_range(const SnowflakeTimeContext *context, StrategyNumber strategy, Node *value, bool *is_exact)
{
	const SnowflakeTimeOfId *time = &context->time;
	const char *unit = time->unit != NULL ? time->unit : "microseconds";
	Node	   *lower = NULL;
	Node	   *upper = NULL;

	if (!snowflake_timebound_is_known_first(value) || !is_useful_zone(time->zone))
		return NULL;
	if (time->is_year && (value = make_year(value)) == NULL)
		return NULL;
	if (!is_comparable(time, getBaseType(exprType(value))))
		return NULL;
	lower = make_known_period_range(context, strategy, value, unit);
	*is_exact = lower != NULL;
	if (*is_exact)
		return lower;

	if (strategy >= BTEqualStrategyNumber)
	{
		Node	   *start = make_period(context, "snowflake_period_start", value, unit);

		lower = start == NULL ? NULL : snowflake_timebound_lower(context, start, false);
	}
	if (strategy <= BTEqualStrategyNumber)
	{
		Node	   *end;

		/* what is before a day, or a year, is so before it is truncated */
		if (strategy == BTLessStrategyNumber && time->is_local &&
			(time->is_year ||
			 (strcmp(unit, "day") == 0 && getBaseType(exprType(value)) == DATEOID)))
			unit = "microseconds";
		end = make_period(context, "snowflake_period_end", value, unit);
		upper = end == NULL ? NULL : snowflake_timebound_upper(context, end, false);
	}
	if (strategy == BTEqualStrategyNumber)
		return snowflake_timebound_both(lower, upper);
	return lower != NULL ? lower : upper;
}

/* What "the time OP value" says of the ID, or implies; NULL if that is nothing. */
Node *
snowflake_timebound_range(const SnowflakeTimeContext *context, StrategyNumber strategy,
						  Node *value, bool *is_exact)
{
	*is_exact = !context->time.is_local && context->time.unit == NULL;
	if (!*is_exact)
		return make_period_range(context, strategy, value, is_exact);

	switch (strategy)
	{
		case BTLessStrategyNumber:
			return snowflake_timebound_upper(context, value, false);
		case BTLessEqualStrategyNumber:
			return snowflake_timebound_upper(context, value, true);
		case BTEqualStrategyNumber:
			return snowflake_timebound_is_known_first(value) ?
				snowflake_timebound_between(context, value) : NULL;
		case BTGreaterEqualStrategyNumber:
			return snowflake_timebound_lower(context, value, false);
		case BTGreaterStrategyNumber:
			return snowflake_timebound_lower(context, value, true);
		default:
			return NULL;
	}
}
