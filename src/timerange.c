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
 * The operators are SQL functions with just these bodies.  The planner puts the
 * body in the operator's place, and what it then sees is core's comparison of
 * integers with a stable expression: it matches indexes, prunes partitions,
 * takes parameters and columns of other tables for the bound, and estimates it
 * with core's estimators.  All that is left to do here is to fold a bound that
 * is constant, so that partitions are pruned already in planning.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/supportnodes.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#include "generator.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_before);
PG_FUNCTION_INFO_V1(snowflake_until);
PG_FUNCTION_INFO_V1(snowflake_before_range);
PG_FUNCTION_INFO_V1(snowflake_until_range);
PG_FUNCTION_INFO_V1(snowflake_bound_support);

/* The largest ID before an instant, -1 if there is none. */
Datum
snowflake_before(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_id_before(&snowflake_server_layout,
										PG_GETARG_TIMESTAMPTZ(0), false));
}

/* The largest ID that is not after an instant, -1 if there is none. */
Datum
snowflake_until(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(snowflake_id_before(&snowflake_server_layout,
										PG_GETARG_TIMESTAMPTZ(0), true));
}

/*
 * The bounds of a tstzrange.  Those of an empty range leave nothing between
 * them.
 */
static void
range_bounds(FunctionCallInfo fcinfo, int64 *before, int64 *until)
{
	RangeType  *range = PG_GETARG_RANGE_P(0);
	TypeCacheEntry *typcache = range_get_typcache(fcinfo, RangeTypeGetOid(range));
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
			*before = snowflake_id_before(&snowflake_server_layout,
										  DatumGetTimestampTz(lower.val),
										  !lower.inclusive);
		if (!upper.infinite)
			*until = snowflake_id_before(&snowflake_server_layout,
										 DatumGetTimestampTz(upper.val),
										 upper.inclusive);
	}
}

/* The largest ID before a range of time. */
Datum
snowflake_before_range(PG_FUNCTION_ARGS)
{
	int64		before,
				until;

	range_bounds(fcinfo, &before, &until);
	PG_RETURN_INT64(before);
}

/* The largest ID that is not after a range of time. */
Datum
snowflake_until_range(PG_FUNCTION_ARGS)
{
	int64		before,
				until;

	range_bounds(fcinfo, &before, &until);
	PG_RETURN_INT64(until);
}

/*
 * Fold a bound of a constant.
 *
 * The bound depends on the server's layout and is therefore not immutable.
 * But a preloaded library's layout changes with a restart only, which no plan
 * survives.
 */
Datum
snowflake_bound_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	FuncExpr   *call;
	Const	   *argument;

	if (!IsA(request, SupportRequestSimplify) || snowflake_generator == NULL)
		PG_RETURN_POINTER(NULL);

	call = ((SupportRequestSimplify *) request)->fcall;
	if (list_length(call->args) != 1 || !IsA(linitial(call->args), Const) ||
		call->funcresulttype != INT8OID)
		PG_RETURN_POINTER(NULL);

	argument = linitial_node(Const, call->args);
	if (argument->constisnull)
		PG_RETURN_POINTER(NULL);

	PG_RETURN_POINTER(makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
								OidFunctionCall1(call->funcid,
												 argument->constvalue),
								false, FLOAT8PASSBYVAL));
}
