/*-------------------------------------------------------------------------
 *
 * timefilter.c
 *	  Filters on the time of an ID, answered by the key.
 *
 * A query compares times, with core's operators; but the index is on the ID.  timehook.c hands
 * each filter of a query to this file, which says the same of the ID:
 *
 *	 1. The four comparisons, equality, IN, BETWEEN and containment in a range have an
 *		equivalent, which takes the place of the condition:
 *
 *			@@ id OP time	a bound of the ID (see timerange.c)
 *			@@ id =  time	two bounds, those of >= and <=
 *			@@ id <@ range	the same, with the range in place of the time
 *			@@ id IN (...)	one equality for each
 *
 *	 2. Other conditions imply a range, which is added; the condition stays:
 *
 *			(@@ id)::date OP day, and to a timestamp
 *			date_trunc(unit, @@ id [, zone]) OP time
 *			@@ id AT TIME ZONE zone OP time, also as a date, or truncated
 *			extract(year FROM any of these) OP year
 *			(@@ id, ...) < (time, ...)
 *			@@ id = ANY (an array or a multirange that is not known yet, or long)
 *
 *		The range tells the planner how many rows there will be, so the condition is wrapped
 *		in snowflake_filter(), an identity that the planner assumes to be true of every row.
 *		For the first four, the range is usually exact in the session's time zone: there the
 *		condition follows "snowflake_period_is_exact() OR", which saves computing it.
 *
 * A condition is a filter if NULL has the same effect as false.  A query with the
 * conditions that this file returns gives the same rows as before.  The exception is an
 * ID that is not of the layout: decoding would refuse it, but here it is compared as a
 * number, since the key decides which rows are read.
 *
 * Where an expression would be evaluated more often than it was written, and that would
 * make a difference, the condition is left alone.  So is an equality with a column of
 * another table: it can be hashed or merged, and a range cannot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/multirangetypes.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "layout/planner.h"

/* The times of a longer list are looked up as a range, not one by one. */
#define MAX_ALTERNATIVES	100

/*
 * Is the node the time of an ID of the table in question, or derived from it?  Sets
 * context->time.
 */
static bool
is_time(SnowflakeTimeContext *context, Node *node)
{
	return snowflake_timeexpr_read(node, &context->time) &&
		(context->relid == 0 || bms_equal(pull_varnos(context->root, context->time.id),
										  bms_make_singleton(context->relid)));
}

/* The same, but only for an instant, as it was decoded. */
static bool
is_instant(SnowflakeTimeContext *context, Node *node)
{
	return is_time(context, node) && !context->time.is_local && context->time.unit == NULL;
}

/* Does the value not depend on the row of the ID? */
static bool
is_independent(const SnowflakeTimeContext *context, Node *value)
{
	return !bms_overlap(pull_varnos(context->root, value),
						pull_varnos(context->root, context->time.id));
}

/* Returns a call of snowflake_filter(), or the condition itself if the user may not call that. */
Node *
snowflake_timefilter_wrap(Oid decoded_by, Node *condition)
{
	Node	   *call = snowflake_timeexpr_call(decoded_by, "snowflake_filter", BOOLOID, BOOLOID,
											   list_make1(condition));

	return call != NULL ? call : condition;
}

/*
 * Returns "range AND condition", where the condition implies the range, or the condition if
 * that is NULL.  "exact_if" is NULL or, together with the range, implies the condition: it is
 * tested first, or the range is enough if it is a constant.
 */
static Node *
make_implied(const SnowflakeTimeContext *context, Node *range, Node *exact_if, Node *condition)
{
	if (range == NULL)
		return condition;
	if (exact_if != NULL && IsA(exact_if, Const))
		return range;
	return snowflake_timebound_both(range, exact_if == NULL ?
									snowflake_timefilter_wrap(context->time.decoded_by, condition) :
									(Node *) make_orclause(list_make2(exact_if, condition)));
}

/* The operator's strategy for the times that are compared; 0: it does not compare them. */
static StrategyNumber
get_strategy(const SnowflakeTimeContext *context, Oid opno, Node *value)
{
	Oid			opfamily = !context->time.is_year ? snowflake_timeexpr_opfamily() :
	lookup_type_cache(exprType(value), TYPECACHE_BTREE_OPFAMILY)->btree_opf;

	return get_op_opfamily_strategy(opno, opfamily);
}

/* "left OP right" */
static Node *
simplify_comparison(SnowflakeTimeContext *context, OpExpr *condition)
{
	Node	   *left = linitial(condition->args);
	Node	   *value = lsecond(condition->args);
	SnowflakeTimeOfId other;
	StrategyNumber strategy;
	Node	   *range;
	Node	   *exact_if;

	if (is_time(context, left))
		strategy = get_strategy(context, condition->opno, left);
	else if (is_time(context, value))
	{
		strategy = get_strategy(context, condition->opno, value);
		if (strategy != 0)
			strategy = BTMaxStrategyNumber + 1 - strategy;
		value = left;
	}
	else
		return (Node *) condition;

	/* a comparison of the times of two IDs has no bound that is known first */
	if (strategy == 0 || !is_independent(context, value) || snowflake_timeexpr_read(value, &other))
		return (Node *) condition;
	range = snowflake_timebound_range(context, strategy, value, &exact_if);
	return make_implied(context, range, exact_if, (Node *) condition);
}

/*
 * "the ID's time is one of these values, or in one of these ranges", in place of the condition.
 * "all" is the whole of them, for use if they are not known, or too many (NIL).
 */
static Node *
make_any(const SnowflakeTimeContext *context, List *values, Node *all, Node *condition)
{
	List	   *ranges = NIL;
	bool		all_exact = true;
	Node	   *range;
	ListCell   *lc;

	if (values == NIL)
		return make_implied(context, snowflake_timebound_between(context, all), NULL, condition);
	foreach(lc, values)
	{
		Node	   *exact_if;

		/* NULL is equal to nothing */
		if (IsA(lfirst(lc), Const) && ((Const *) lfirst(lc))->constisnull)
			continue;
		range = snowflake_timebound_range(context, BTEqualStrategyNumber, lfirst(lc), &exact_if);
		if (range == NULL)
			return condition;
		all_exact &= exact_if != NULL && IsA(exact_if, Const);
		ranges = lappend(ranges, range);
	}
	if (ranges == NIL)
		return condition;
	range = list_length(ranges) == 1 ? linitial(ranges) : (Node *) make_orclause(ranges);
	return all_exact ? range : make_implied(context, range, NULL, condition);
}

/* The elements of an array, if they are few and known; otherwise NIL. */
static List *
get_elements(Node *array)
{
	List	   *elements = NIL;

	if (IsA(array, ArrayExpr) && !((ArrayExpr *) array)->multidims &&
		list_length(((ArrayExpr *) array)->elements) <= MAX_ALTERNATIVES)
		return ((ArrayExpr *) array)->elements;
	if (IsA(array, Const) && !((Const *) array)->constisnull)
	{
		ArrayType  *value = DatumGetArrayTypeP(((Const *) array)->constvalue);
		Oid			type = ARR_ELEMTYPE(value);
		int16		length;
		bool		by_value;
		char		align;
		Datum	   *values;
		bool	   *nulls;
		int			n;

		get_typlenbyvalalign(type, &length, &by_value, &align);
		deconstruct_array(value, type, length, by_value, align, &values, &nulls, &n);
		if (n > MAX_ALTERNATIVES)
			return NIL;
		for (int i = 0; i < n; i++)
			elements = lappend(elements, makeConst(type, -1, InvalidOid, length, values[i],
												   nulls[i], by_value));
	}
	return elements;
}

/* "left = ANY (array)" */
static Node *
simplify_any(SnowflakeTimeContext *context, ScalarArrayOpExpr *condition)
{
	Node	   *array = lsecond(condition->args);
	List	   *elements;

	if (!condition->useOr || !is_time(context, linitial(condition->args)) ||
		get_strategy(context, condition->opno, linitial(condition->args)) != BTEqualStrategyNumber ||
		!snowflake_timebound_is_known_first(array))
		return (Node *) condition;
	elements = get_elements(array);
	if (elements == NIL &&
		(context->time.is_local || context->time.unit != NULL ||
		 getBaseType(exprType(array)) != TIMESTAMPTZARRAYOID))
		return (Node *) condition;
	return make_any(context, elements, array, (Node *) condition);
}

/* The ranges of a multirange, if they are few and known; otherwise NIL. */
static List *
get_ranges(Node *multirange)
{
	List	   *ranges = NIL;
	MultirangeType *value;
	TypeCacheEntry *type;

	if (!IsA(multirange, Const) || ((Const *) multirange)->constisnull)
		return NIL;
	value = DatumGetMultirangeTypeP(((Const *) multirange)->constvalue);
	if (value->rangeCount > MAX_ALTERNATIVES)
		return NIL;
	type = lookup_type_cache(TSTZRANGEOID, TYPECACHE_RANGE_INFO);
	for (uint32 i = 0; i < value->rangeCount; i++)
		ranges = lappend(ranges, makeConst(TSTZRANGEOID, -1, InvalidOid, -1,
										   RangeTypePGetDatum(multirange_get_range(type, value, i)),
										   false, false));
	return ranges;
}

/* Does a value depend on a row of another table, or of a query around this one? */
static bool
depends_on_row(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) || (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC))
		return true;
	return expression_tree_walker(node, depends_on_row, context);
}

/* A call of tstzrange() with one of its two times, and NULL for the other. */
static Node *
make_half_range(FuncExpr *range, int n)
{
	FuncExpr   *half = copyObject(range);

	lfirst(list_nth_cell(half->args, n)) = makeNullConst(TIMESTAMPTZOID, -1, InvalidOid);
	return (Node *) half;
}

/* Is the node a valid last argument of tstzrange(), such as '[)'? */
static bool
is_bounds(Node *node)
{
	const char *bounds = snowflake_timeexpr_get_text(node);

	return bounds != NULL && strlen(bounds) == 2 &&
		strchr("[(", bounds[0]) != NULL && strchr("])", bounds[1]) != NULL;
}

/*
 * "the ID's time is in this range", or NULL.
 *
 * To make a range of two times in the wrong order is an error.  If they are of another row, core
 * raises it only if that row meets all other conditions; as the bound of an index scan, the
 * range would be made for other rows as well.  So each time gets a half-open range of its own,
 * which can always be made; if the order is wrong, nothing is in both.  The range of a column
 * or a parameter has been made already; other ways to make one are left to core.
 */
static Node *
make_in_range(const SnowflakeTimeContext *context, Node *range)
{
	FuncExpr   *call = (FuncExpr *) snowflake_timeexpr_strip(range);

	if (IsA(call, Const) || IsA(call, Var) || IsA(call, Param) || !depends_on_row(range, NULL))
		return snowflake_timebound_between(context, range);
	if (!IsA(call, FuncExpr) || (call->funcid != F_TSTZRANGE_TIMESTAMPTZ_TIMESTAMPTZ &&
								 (call->funcid != F_TSTZRANGE_TIMESTAMPTZ_TIMESTAMPTZ_TEXT ||
								  !is_bounds(lthird(call->args)))))
		return NULL;
	return snowflake_timebound_both(snowflake_timebound_time(context, false, make_half_range(call, 1), false),
									snowflake_timebound_time(context, true, make_half_range(call, 0), true));
}

/* "time <@ range" and "range @> time", of a tstzrange or tstzmultirange */
static Node *
simplify_containment(SnowflakeTimeContext *context, OpExpr *condition)
{
	Node	   *time = linitial(condition->args);
	Node	   *range = lsecond(condition->args);
	List	   *ranges;
	Oid			type;

	if (condition->opno == OID_RANGE_CONTAINS_ELEM_OP ||
		condition->opno == OID_MULTIRANGE_CONTAINS_ELEM_OP)
	{
		range = time;
		time = lsecond(condition->args);
	}
	if (!is_instant(context, time) || !is_independent(context, range) ||
		snowflake_timeexpr_must_be_evaluated_once(range))
		return (Node *) condition;

	type = getBaseType(exprType(range));
	if (type == TSTZRANGEOID)
	{
		Node	   *simplified = make_in_range(context, range);

		return simplified != NULL ? simplified : (Node *) condition;
	}
	if (type != TSTZMULTIRANGEOID)
		return (Node *) condition;
	ranges = get_ranges(range);
	if (ranges == NIL && depends_on_row(range, NULL) && !IsA(range, Param))
		return (Node *) condition;
	return make_any(context, ranges, range, (Node *) condition);
}

/*
 * Returns "(time of id, id) OP (value, other)" as one bound of the ID, or NULL if not both values
 * are known.  The lesser IDs are those before the value and, of its time, those below the other.
 */
static Node *
make_known_pair(const SnowflakeTimeContext *context, StrategyNumber strategy, Node *value, Node *other)
{
	Const	   *number = (Const *) other;
	int64		before,
				until,
				id;

	if (!snowflake_timebound_constant(context, value, false, &before) ||
		!snowflake_timebound_constant(context, value, true, &until) ||
		!IsA(other, Const) || number->constisnull ||
		(number->consttype != INT8OID && number->consttype != INT4OID))
		return NULL;
	id = number->consttype == INT8OID ? DatumGetInt64(number->constvalue) :
		DatumGetInt32(number->constvalue);
	if (strategy == BTLessStrategyNumber || strategy == BTGreaterEqualStrategyNumber)
		id = Max(id, 0) - 1;
	return snowflake_timebound_compare(context, strategy < BTEqualStrategyNumber,
									   snowflake_timebound_number(INT8OID, Max(before, Min(until, id))));
}

/*
 * The same where they are not known, for use beside the range of the time: the time alone
 * decides, or the ID does, by the given operator.
 */
static Node *
make_pair_condition(const SnowflakeTimeContext *context, bool is_less, Node *value, Oid opno, Node *other)
{
	OpExpr	   *by_id = (OpExpr *) make_opclause(opno, BOOLOID, false,
												 (Expr *) copyObject(context->time.id),
												 (Expr *) copyObject(other), InvalidOid, InvalidOid);
	Node	   *by_time = snowflake_timebound_time(context, is_less, value, !is_less);

	set_opfuncid(by_id);
	return by_time == NULL ? NULL : (Node *) make_orclause(list_make2(by_time, by_id));
}

/* "(time, ...) OP (value, ...)", whose first columns imply a range */
static Node *
simplify_row_comparison(SnowflakeTimeContext *context, RowCompareExpr *condition)
{
	Node	   *value = linitial(condition->rargs);
	StrategyNumber strategy = RowCompareStrategy(condition);
	Node	   *rest = NULL;
	bool		is_less;

	if (!is_instant(context, linitial(condition->largs)))
	{
		if (!is_instant(context, value))
			return (Node *) condition;
		value = linitial(condition->largs);
		strategy = BTMaxStrategyNumber + 1 - strategy;
	}
	if (!snowflake_timebound_is_known_first(value) ||
		get_strategy(context, linitial_oid(condition->opnos), value) == 0)
		return (Node *) condition;
	is_less = strategy < BTEqualStrategyNumber;
	if (list_length(condition->largs) == 2 && value == linitial(condition->rargs) &&
		equal(snowflake_timeexpr_strip(lsecond(condition->largs)),
			  snowflake_timeexpr_strip(context->time.id)) &&
		list_nth_oid(condition->opfamilies, 1) == INTEGER_BTREE_FAM_OID)
	{
		Node	   *known = make_known_pair(context, strategy, value, lsecond(condition->rargs));

		if (known != NULL)
			return known;
		rest = make_pair_condition(context, is_less, value, lsecond_oid(condition->opnos),
								   lsecond(condition->rargs));
	}
	return make_implied(context, snowflake_timebound_time(context, is_less, value, is_less), NULL,
						rest != NULL ? rest : (Node *) condition);
}

/* "time IS [NOT] NULL": the same as that of the ID, since the layout is not NULL */
static Node *
simplify_null_test(SnowflakeTimeContext *context, NullTest *condition)
{
	NullTest   *simplified;
	Node	   *layout;

	if (condition->argisrow || !is_instant(context, (Node *) condition->arg))
		return (Node *) condition;
	layout = context->time.layout;
	if (layout != NULL && snowflake_timeexpr_get_text(layout) == NULL)
		return (Node *) condition;
	simplified = copyObject(condition);
	simplified->arg = (Expr *) copyObject(context->time.id);
	return (Node *) simplified;
}

/*
 * Returns a condition with comparisons of IDs in place of what it says of their times, or
 * the condition itself if it says nothing of them.  The IDs are those of the table relid,
 * or of any table if that is 0.  Sets *decoded_by to the decoding function if it changes
 * something.  The condition must be a filter or a part of one, simplified by core, with its
 * subqueries.  The result may share parts with it.
 */
Node *
snowflake_timefilter_simplify(PlannerInfo *root, Index relid, Node *condition, Oid *decoded_by)
{
	SnowflakeTimeContext context = {.root = root,.relid = relid};
	Node	   *simplified = condition;

	if (is_andclause(condition) || is_orclause(condition))
	{
		List	   *args = NIL;
		bool		changed = false;
		ListCell   *lc;

		check_stack_depth();
		foreach(lc, ((BoolExpr *) condition)->args)
		{
			Node	   *arg = snowflake_timefilter_simplify(root, relid, lfirst(lc), decoded_by);

			changed |= arg != lfirst(lc);
			if ((is_andclause(condition) && is_andclause(arg)) ||
				(is_orclause(condition) && is_orclause(arg)))
				args = list_concat(args, ((BoolExpr *) arg)->args);
			else
				args = lappend(args, arg);
		}
		return changed ? (Node *) makeBoolExpr(((BoolExpr *) condition)->boolop, args, -1) : condition;
	}

	switch (nodeTag(condition))
	{
		case T_OpExpr:
			switch (((OpExpr *) condition)->opno)
			{
				case OID_RANGE_ELEM_CONTAINED_OP:
				case OID_RANGE_CONTAINS_ELEM_OP:
				case OID_MULTIRANGE_ELEM_CONTAINED_OP:
				case OID_MULTIRANGE_CONTAINS_ELEM_OP:
					simplified = simplify_containment(&context, (OpExpr *) condition);
					break;
				default:
					if (list_length(((OpExpr *) condition)->args) == 2)
						simplified = simplify_comparison(&context, (OpExpr *) condition);
			}
			break;
		case T_ScalarArrayOpExpr:
			simplified = simplify_any(&context, (ScalarArrayOpExpr *) condition);
			break;
		case T_RowCompareExpr:
			simplified = simplify_row_comparison(&context, (RowCompareExpr *) condition);
			break;
		case T_NullTest:
			simplified = simplify_null_test(&context, (NullTest *) condition);
			break;
		default:
			break;
	}
	if (simplified != condition)
		*decoded_by = context.time.decoded_by;
	return simplified;
}
