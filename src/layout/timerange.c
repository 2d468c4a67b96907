/*-------------------------------------------------------------------------
 *
 * timerange.c
 *	  Times as bounds on IDs, so that a comparison with a time is a range of
 *	  the primary key.
 *
 * An ID's instant is the start of its tick, and IDs sort by it.  So "id < ts"
 * says the same as "id <= the largest ID before ts", and with two such bounds
 * each of the four comparisons is one of integers:
 *
 *		id <  ts	id::bigint <= snowflake_before(ts)
 *		id <= ts	id::bigint <= snowflake_until(ts)
 *		id >  ts	id::bigint >  snowflake_until(ts)
 *		id >= ts	id::bigint >  snowflake_before(ts)
 *
 * Bounds are from -1, where no ID is, to the largest bigint, so they exist for
 * each time: before the epoch, after the layout's end, infinite.
 *
 * The operators are SQL functions with just these bodies.  The planner inlines
 * the body, and then sees core's comparison of
 * integers with a stable expression: it matches indexes, prunes partitions,
 * takes parameters and columns of other tables for the bound, and estimates it
 * with core's estimators.
 *
 * This file only treats constants: the comparison with a constant bound
 * is built directly, which takes the planner less time than the body, and prunes
 * partitions already in planning.  A lower bound is written as "id::bigint >=
 * bound + 1": to the planner there might be something between the last ID of one
 * partition and the first of the next, so with ">" it would keep the earlier
 * partition, too.  That form cannot say "after the largest bigint", so it is none
 * for bounds that are not known yet.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "layout/decode.h"
#include "layout/server_layout.h"
#include "layout/timerange.h"

PG_FUNCTION_INFO_V1(snowflake_before);
PG_FUNCTION_INFO_V1(snowflake_until);
PG_FUNCTION_INFO_V1(snowflake_before_timestamp);
PG_FUNCTION_INFO_V1(snowflake_until_timestamp);
PG_FUNCTION_INFO_V1(snowflake_before_date);
PG_FUNCTION_INFO_V1(snowflake_until_date);
PG_FUNCTION_INFO_V1(snowflake_before_range);
PG_FUNCTION_INFO_V1(snowflake_until_range);
PG_FUNCTION_INFO_V1(snowflake_lt_support);
PG_FUNCTION_INFO_V1(snowflake_le_support);
PG_FUNCTION_INFO_V1(snowflake_ge_support);
PG_FUNCTION_INFO_V1(snowflake_gt_support);
PG_FUNCTION_INFO_V1(snowflake_range_support);

/* The largest ID before an instant, or with "inclusive", not after it. */
static int64
instant_bound(const SnowflakeLayout *layout, TimestampTz ts, bool inclusive)
{
	return inclusive ? snowflake_layout_id_until(layout, ts) :
		snowflake_layout_id_before(layout, ts);
}

/* The largest ID before an instant, -1 if there is none. */
Datum
snowflake_before(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(instant_bound(snowflake_decode_get_layout(fcinfo, 1),
								  PG_GETARG_TIMESTAMPTZ(0), false));
}

/* The largest ID that is not after an instant, -1 if there is none. */
Datum
snowflake_until(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(instant_bound(snowflake_decode_get_layout(fcinfo, 1),
								  PG_GETARG_TIMESTAMPTZ(0), true));
}

/*
 * A timestamp or a date in the session's time zone, of which those two functions of
 * core are the comparison with a timestamptz and the cast to one.  For what no
 * timestamptz can say, the cast raises an error where the comparison finds that it
 * lies before or after all of them, as an infinity does.
 */
static TimestampTz
local_time(Datum time, PGFunction compare, PGFunction cast)
{
	if (DatumGetInt32(DirectFunctionCall2(compare, time,
										  TimestampTzGetDatum(MIN_TIMESTAMP))) < 0)
		return DT_NOBEGIN;
	if (DatumGetInt32(DirectFunctionCall2(compare, time,
										  TimestampTzGetDatum(END_TIMESTAMP - 1))) > 0)
		return DT_NOEND;
	return DatumGetTimestampTz(DirectFunctionCall1(cast, time));
}

Datum
snowflake_before_timestamp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(instant_bound(snowflake_decode_get_layout(fcinfo, 1),
								  local_time(PG_GETARG_DATUM(0), timestamp_cmp_timestamptz,
											 timestamp_timestamptz), false));
}

Datum
snowflake_until_timestamp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(instant_bound(snowflake_decode_get_layout(fcinfo, 1),
								  local_time(PG_GETARG_DATUM(0), timestamp_cmp_timestamptz,
											 timestamp_timestamptz), true));
}

Datum
snowflake_before_date(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(instant_bound(snowflake_decode_get_layout(fcinfo, 1),
								  local_time(PG_GETARG_DATUM(0), date_cmp_timestamptz,
											 date_timestamptz), false));
}

Datum
snowflake_until_date(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(instant_bound(snowflake_decode_get_layout(fcinfo, 1),
								  local_time(PG_GETARG_DATUM(0), date_cmp_timestamptz,
											 date_timestamptz), true));
}

/*
 * The bounds of a tstzrange.  Those of an empty range leave nothing between
 * them.
 */
static void
range_bounds(const SnowflakeLayout *layout, RangeType *range,
			 int64 *before, int64 *until)
{
	TypeCacheEntry *typcache = lookup_type_cache(RangeTypeGetOid(range),
												 TYPECACHE_RANGE_INFO);
	RangeBound	lower,
				upper;
	bool		empty;

	range_deserialize(typcache, range, &lower, &upper, &empty);

	*before = -1;
	*until = PG_INT64_MAX;
	if (empty)
		*until = -1;
	else
	{
		if (!lower.infinite)
			*before = instant_bound(layout, DatumGetTimestampTz(lower.val),
									!lower.inclusive);
		if (!upper.infinite)
			*until = instant_bound(layout, DatumGetTimestampTz(upper.val),
								   upper.inclusive);
	}
}

/* The largest ID before a range of time. */
Datum
snowflake_before_range(PG_FUNCTION_ARGS)
{
	int64		before,
				until;

	range_bounds(snowflake_decode_get_layout(fcinfo, 1), PG_GETARG_RANGE_P(0),
				 &before, &until);
	PG_RETURN_INT64(before);
}

/* The largest ID that is not after a range of time. */
Datum
snowflake_until_range(PG_FUNCTION_ARGS)
{
	int64		before,
				until;

	range_bounds(snowflake_decode_get_layout(fcinfo, 1), PG_GETARG_RANGE_P(0),
				 &before, &until);
	PG_RETURN_INT64(until);
}

/*
 * May what depends on the server's layout be computed at once?
 *
 * It may go into a plan: a preloaded library's layout changes with a restart only, which
 * no plan survives.  But it is not immutable.  Where an expression is simplified without
 * a query, it is to be stored, as the predicate of an index, or is looked at for that.
 */
bool
snowflake_timerange_may_fold(const PlannerInfo *root)
{
	return snowflake_layout_is_fixed && root != NULL && root->parse != NULL;
}

/* A time, if that is a constant of the given type, or NULL. */
static Const *
constant_time(Node *time, Oid type)
{
	Const	   *constant = (Const *) time;

	if (!IsA(time, Const) || constant->constisnull || constant->consttype != type)
		return NULL;
	return constant;
}

static Node *
make_bound(int64 bound)
{
	return (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
							  Int64GetDatum(bound), false, FLOAT8PASSBYVAL);
}

/*
 * "id OP bound", with core's operator of bigint of that btree strategy.
 *
 * The ID is relabelled by an explicit cast, so that it is one in a query that is
 * sent to another server.
 */
static Node *
compare_id(Node *id, StrategyNumber strategy, Node *bound)
{
	OpExpr	   *comparison;
	Oid			opno = get_opfamily_member(INTEGER_BTREE_FAM_OID, INT8OID,
										   INT8OID, strategy);

	id = applyRelabelType(copyObject(id), INT8OID, -1, InvalidOid,
						  COERCE_EXPLICIT_CAST, -1, false);
	comparison = (OpExpr *) make_opclause(opno, BOOLOID, false, (Expr *) id,
										  (Expr *) bound,
										  InvalidOid, InvalidOid);
	set_opfuncid(comparison);
	return (Node *) comparison;
}

/*
 * "id is not larger than a bound", and "id is larger than a bound", in the form
 * that prunes best.  The ID is an expression of bigint or snowflake, of which a copy
 * is taken; the bound is one of bigint, and becomes part of the result.
 */
Node *
snowflake_timerange_upper(Node *id, Node *bound)
{
	return compare_id(id, BTLessEqualStrategyNumber, bound);
}

Node *
snowflake_timerange_lower(Node *id, Node *bound)
{
	if (IsA(bound, Const) && !((Const *) bound)->constisnull &&
		DatumGetInt64(((Const *) bound)->constvalue) != PG_INT64_MAX)
		return compare_id(id, BTGreaterEqualStrategyNumber,
						  make_bound(DatumGetInt64(((Const *) bound)->constvalue) + 1));
	return compare_id(id, BTGreaterStrategyNumber, bound);
}

/*
 * The largest ID before a time, or with "inclusive", not after it, by the server's
 * layout, if it can be said already: a constant, or NULL.
 */
Node *
snowflake_timerange_constant(const PlannerInfo *root, Node *time, bool inclusive)
{
	Const	   *constant;
	int64		before,
				until;

	if (!snowflake_timerange_may_fold(root))
		return NULL;
	if ((constant = constant_time(time, TIMESTAMPTZOID)) != NULL)
		return make_bound(instant_bound(&snowflake_server_layout,
										DatumGetTimestampTz(constant->constvalue),
										inclusive));
	if ((constant = constant_time(time, TSTZRANGEOID)) == NULL)
		return NULL;
	range_bounds(&snowflake_server_layout,
				 DatumGetRangeTypeP(constant->constvalue), &before, &until);
	return make_bound(inclusive ? until : before);
}

/*
 * Simplify a comparison of an ID and a time, whichever comes first, if the time
 * is a constant.  "lower" is whether it is a lower bound, "inclusive" is as in
 * instant_bound().
 */
static Node *
simplify_comparison(Node *request, bool lower, bool inclusive)
{
	PlannerInfo *root;
	FuncExpr   *call;

	if (!IsA(request, SupportRequestSimplify))
		return NULL;

	root = ((SupportRequestSimplify *) request)->root;
	call = ((SupportRequestSimplify *) request)->fcall;
	for (int n = 0; n < 2; n++)
	{
		Node	   *bound = snowflake_timerange_constant(root, list_nth(call->args, n),
														 inclusive);
		Node	   *id = list_nth(call->args, 1 - n);

		if (bound != NULL)
			return lower ? snowflake_timerange_lower(id, bound) :
				snowflake_timerange_upper(id, bound);
	}
	return NULL;
}

Datum
snowflake_lt_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0), false, false));
}

Datum
snowflake_le_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0), false, true));
}

Datum
snowflake_ge_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0), true, false));
}

Datum
snowflake_gt_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0), true, true));
}

/* Simplify "id <@ range" and "range @> id", if the range is a constant. */
Datum
snowflake_range_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	PlannerInfo *root;
	FuncExpr   *call;

	if (!IsA(request, SupportRequestSimplify))
		PG_RETURN_POINTER(NULL);

	root = ((SupportRequestSimplify *) request)->root;
	call = ((SupportRequestSimplify *) request)->fcall;
	for (int n = 0; n < 2; n++)
	{
		Node	   *range = list_nth(call->args, n);
		Node	   *before = snowflake_timerange_constant(root, range, false);
		Node	   *until = snowflake_timerange_constant(root, range, true);
		Node	   *id = list_nth(call->args, 1 - n);

		if (before == NULL)
			continue;

		/* the ID would be computed twice */
		if (contain_volatile_functions(id) || contain_subplans(id))
			break;
		PG_RETURN_POINTER(make_andclause(list_make2(snowflake_timerange_lower(id, before),
													snowflake_timerange_upper(id, until))));
	}
	PG_RETURN_POINTER(NULL);
}
