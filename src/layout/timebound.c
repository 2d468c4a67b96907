/*-------------------------------------------------------------------------
 *
 * timebound.c
 *	  Conditions on the ID that follow from a comparison with its time.
 *
 * A bound is a constant, or a call of snowflake_before() or snowflake_until() (timerange.c).  For a
 * local or truncated time, the argument of that is a call of snowflake_period_start() or
 * snowflake_period_end() (timeperiod.c).  These functions return NULL if no condition follows, or
 * if the user may not call a function that they need.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/stratnum.h"
#include "catalog/pg_opfamily_d.h"
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
#include "layout/planner.h"
#include "layout/server_layout.h"

/* Is the value known before any row is read, and may it be evaluated more than once? */
bool
snowflake_timebound_is_known_first(Node *value)
{
	return !contain_var_clause(value) && !snowflake_timeexpr_must_be_evaluated_once(value);
}

/* Returns a constant of a type that is a 64-bit integer, as bigint and the timestamps are. */
Node *
snowflake_timebound_number(Oid type, int64 value)
{
	return (Node *) makeConst(type, -1, InvalidOid, sizeof(int64), Int64GetDatum(value), false,
							  FLOAT8PASSBYVAL);
}

/*
 * Sets *bound to the largest ID before a time or, with "inclusive", not after it.
 * Returns false if that is not known during planning.  That of a timestamp or a date depends on
 * the session's time zone, which may be another one when the plan is executed.
 */
bool
snowflake_timebound_constant(const SnowflakeTimeContext *context, Node *time, bool inclusive,
							 int64 *bound)
{
	Const	   *constant = (Const *) time;
	Node	   *layout = context->time.layout;
	const char *text;
	SnowflakeLayout given;
	Oid			type;

	if (!IsA(time, Const) || constant->constisnull)
		return false;
	type = getBaseType(constant->consttype);
	if (type == DATEOID || type == TIMESTAMPOID)
		return false;
	if (layout == NULL ? !snowflake_timeexpr_may_fold(context->root) :
		((text = snowflake_timeexpr_get_text(layout)) == NULL ||
		 snowflake_layout_parse(text, &given) != NULL))
		return false;
	*bound = snowflake_timerange_bound(layout == NULL ? &snowflake_server_layout : &given, type,
									   constant->constvalue, inclusive);
	return true;
}

/* Returns that bound as a constant, or else as a call of snowflake_before() or _until(). */
static Node *
make_bound(const SnowflakeTimeContext *context, Node *time, bool inclusive)
{
	Node	   *layout = context->time.layout;
	List	   *args;
	int64		bound;

	if (time == NULL)
		return NULL;
	if (snowflake_timebound_constant(context, time, inclusive, &bound))
		return snowflake_timebound_number(INT8OID, bound);

	args = list_make1(copyObject(time));
	if (layout != NULL)
		args = lappend(args, copyObject(layout));
	return snowflake_timeexpr_call(context->time.decoded_by,
								   inclusive ? "snowflake_until" : "snowflake_before",
								   ANYELEMENTOID, INT8OID, args);
}

/*
 * Returns "the ID is not larger than a bound", or "... is larger than a bound", in
 * the form that prunes best (see timerange.c).  The bound becomes part of the result.
 * The cast of the ID is explicit, so that it is sent to another server as well.
 */
Node *
snowflake_timebound_compare(const SnowflakeTimeContext *context, bool is_upper, Node *bound)
{
	Const	   *constant = (Const *) bound;
	StrategyNumber strategy = is_upper ? BTLessEqualStrategyNumber : BTGreaterStrategyNumber;
	OpExpr	   *comparison;
	Node	   *id;

	if (bound == NULL)
		return NULL;
	if (!is_upper && IsA(bound, Const) && DatumGetInt64(constant->constvalue) != PG_INT64_MAX)
	{
		strategy = BTGreaterEqualStrategyNumber;
		bound = snowflake_timebound_number(INT8OID, DatumGetInt64(constant->constvalue) + 1);
	}
	id = applyRelabelType(copyObject(context->time.id), INT8OID, -1, InvalidOid,
						  COERCE_EXPLICIT_CAST, -1, false);
	comparison = (OpExpr *) make_opclause(get_opfamily_member(INTEGER_BTREE_FAM_OID, INT8OID,
															  INT8OID, strategy),
										  BOOLOID, false, (Expr *) id, (Expr *) bound,
										  InvalidOid, InvalidOid);
	set_opfuncid(comparison);
	return (Node *) comparison;
}

/*
 * Returns "the ID's time is before a time", if is_upper, or "... not before a time"; with
 * "inclusive", "... not after a time" or "... after a time".
 */
Node *
snowflake_timebound_time(const SnowflakeTimeContext *context, bool is_upper, Node *time,
						 bool inclusive)
{
	return snowflake_timebound_compare(context, is_upper, make_bound(context, time, inclusive));
}

/* Returns both of two conditions, in one flat list as core has them, or NULL if either is. */
Node *
snowflake_timebound_both(Node *one, Node *other)
{
	if (one == NULL || other == NULL)
		return NULL;
	return (Node *) make_andclause(list_concat_copy(make_ands_implicit((Expr *) one),
													make_ands_implicit((Expr *) other)));
}

/* Returns "the ID's time is this one", or "... is in this range" */
Node *
snowflake_timebound_between(const SnowflakeTimeContext *context, Node *time)
{
	return snowflake_timebound_both(snowflake_timebound_time(context, false, time, false),
									snowflake_timebound_time(context, true, time, true));
}

/* A call of snowflake_period_start(), _end() or _is_exact(), a constant if possible; or NULL. */
static Node *
make_period(const SnowflakeTimeContext *context, const char *name, Oid type, Node *time,
			const char *unit)
{
	List	   *args = lappend(list_make1(copyObject(time)), snowflake_timeexpr_text(unit));

	if (context->time.zone != NULL)
		args = lappend(args, copyObject(context->time.zone));
	return eval_const_expressions(context->root,
								  snowflake_timeexpr_call(context->time.decoded_by, name,
														  ANYELEMENTOID, type, args));
}

/* The start of a year as a timestamp, or NULL if the value is not the number of a year. */
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
	return snowflake_timebound_number(TIMESTAMPOID,
									  (date2j((int) year, 1, 1) - POSTGRES_EPOCH_JDATE) *
									  USECS_PER_DAY);
}

/*
 * Can the time, which is not a plain instant, be compared with a value of the given type here?  A
 * timestamp or a date is in the session's zone, so an instant must have been truncated in that.
 */
static bool
is_comparable(const SnowflakeTimeOfId *time, Oid type)
{
	if (type == TIMESTAMPTZOID)
		return !time->is_local;
	return (type == TIMESTAMPOID || type == DATEOID) && (time->is_local || time->zone == NULL);
}

/* Does the time zone give a range, as far as is known?  NULL is the session's. */
static bool
is_useful_zone(Node *zone)
{
	const char *name;

	if (zone == NULL)
		return true;
	if (!IsA(zone, Const))
		return snowflake_timebound_is_known_first(zone);
	name = snowflake_timeexpr_get_text(zone);
	return name != NULL && snowflake_timeperiod_is_zone(name);
}

/* Is the truncated time before the value exactly when the time itself is? */
static bool
is_before_any_unit(const SnowflakeTimeOfId *time, StrategyNumber strategy, Node *value)
{
	if (strategy != BTLessStrategyNumber || !time->is_local)
		return false;
	return time->unit == NULL || time->is_year ||
		(strcmp(time->unit, "day") == 0 && getBaseType(exprType(value)) == DATEOID);
}

/*
 * Sets *from and *to to the ends of the range that "time OP value" implies, where the time
 * is local or was truncated.  Returns false if there is none.  Sets *exact_if to a condition
 * under which the range says the same as the comparison: a constant, if it is known to; NULL,
 * if none is known.
 */
static bool
make_period_ends(const SnowflakeTimeContext *context, StrategyNumber strategy, Node *value,
				 Node **from, Node **to, Node **exact_if)
{
	const SnowflakeTimeOfId *time = &context->time;
	const char *unit = time->unit != NULL ? time->unit : "microseconds";
	Node	   *exact;

	if (!snowflake_timebound_is_known_first(value) || !is_useful_zone(time->zone))
		return false;
	if (time->is_year && (value = make_year(value)) == NULL)
		return false;
	if (!is_comparable(time, getBaseType(exprType(value))))
		return false;

	if (is_before_any_unit(time, strategy, value))
		unit = SNOWFLAKE_TIMEPERIOD_NONE;
	*from = make_period(context, "snowflake_period_start", TIMESTAMPTZOID, value, unit);
	*to = make_period(context, "snowflake_period_end", TIMESTAMPTZOID, value, unit);
	exact = make_period(context, "snowflake_period_is_exact", BOOLOID, value, unit);

	*exact_if = NULL;
	if (exact != NULL && IsA(exact, Const))
	{
		if (((Const *) exact)->constisnull || !DatumGetBool(((Const *) exact)->constvalue))
			return true;
		*exact_if = exact;
		if (strategy == BTLessStrategyNumber)
			*to = *from;
		if (strategy == BTGreaterStrategyNumber)
			*from = *to;
	}
	/* the ranges of < and > have the value's own unit in them, unless exact */
	else if ((strategy != BTLessStrategyNumber || strcmp(unit, SNOWFLAKE_TIMEPERIOD_NONE) == 0) &&
			 strategy != BTGreaterStrategyNumber && (time->zone == NULL || IsA(time->zone, Const)))
		*exact_if = exact;
	return true;
}

/*
 * Returns the condition on the ID that says the same as "the time OP value", or that follows
 * from it; NULL if there is none.  For "exact_if", see make_period_ends().
 */
Node *
snowflake_timebound_range(const SnowflakeTimeContext *context, StrategyNumber strategy,
						  Node *value, Node **exact_if)
{
	bool		is_instant = !context->time.is_local && context->time.unit == NULL;
	Node	   *from = value;
	Node	   *to = value;
	Node	   *lower = NULL;
	Node	   *upper = NULL;

	*exact_if = makeBoolConst(true, false);
	if (!is_instant && !make_period_ends(context, strategy, value, &from, &to, exact_if))
		return NULL;

	if (strategy >= BTEqualStrategyNumber)
		lower = snowflake_timebound_time(context, false, from,
										 is_instant && strategy == BTGreaterStrategyNumber);
	if (strategy <= BTEqualStrategyNumber)
		upper = snowflake_timebound_time(context, true, to,
										 is_instant && strategy != BTLessStrategyNumber);
	if (strategy != BTEqualStrategyNumber)
		return lower != NULL ? lower : upper;
	return snowflake_timebound_is_known_first(value) ? snowflake_timebound_both(lower, upper) : NULL;
}
