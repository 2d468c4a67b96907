/*-------------------------------------------------------------------------
 *
 * timefilter.c
 *	  Filters on the time of an ID, answered by the key.
 *
 * The decoding functions, snowflake_timestamp() and the operator @, return the
 * domain snowflake_time over timestamptz.  The domain has comparison operators of
 * its own.  They call core's functions, so an operator that is executed is core's
 * comparison; and they have the support functions below, which avoid its
 * execution.  In place of a call they put
 *
 *	 1. a comparison of the ID, if one side is the time of an ID of a table and the
 *		other one is another time:
 *
 *			@ id <	time	id::bigint <= snowflake_before(time)
 *			@ id <= time	id::bigint <= snowflake_until(time)
 *			@ id >	time	id::bigint >  snowflake_until(time)
 *			@ id >= time	id::bigint >  snowflake_before(time)
 *			@ id =	time	the second and the fourth
 *			@ id <@ range	the same, with the range in place of the time
 *
 *		(timerange.c explains why);
 *
 *	 2. nothing, if one side is a column of a subquery, which may turn out to be the
 *		time of an ID when the condition is pushed down into it, and the other side
 *		is known before any row is read;
 *
 *	 3. core's operator of timestamptz in all other cases.  So a column of this
 *		domain is joined, hashed, sorted, estimated and looked up in an index as one
 *		of timestamptz is, though no operator family of core has these operators.
 *
 * A comparison gives what it would have given without this, for every time there
 * is.  Only an ID that is not of the layout, which snowflake_timestamp() refuses, is
 * compared as the number that it is: which rows are read is up to the key.
 *
 * An expression is evaluated as often as it was written.  An equality or a range
 * needs the ID twice, and the time of an equality as well, so they are left alone if
 * that would make a difference.  An equality of two columns is left alone, too: it
 * can be hashed or merged, which a range cannot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "layout/server_layout.h"
#include "layout/timefilter.h"
#include "layout/timerange.h"

PG_FUNCTION_INFO_V1(snowflake_timestamp_support);
PG_FUNCTION_INFO_V1(snowflake_time_lt_support);
PG_FUNCTION_INFO_V1(snowflake_time_le_support);
PG_FUNCTION_INFO_V1(snowflake_time_eq_support);
PG_FUNCTION_INFO_V1(snowflake_time_ge_support);
PG_FUNCTION_INFO_V1(snowflake_time_gt_support);
PG_FUNCTION_INFO_V1(snowflake_time_range_support);

/*
 * Is that function one that decodes the time of its first argument, by its second
 * one or by the server's layout?
 *
 * A function whose support function is snowflake_timestamp_support() is.  Only a
 * superuser can give a function one, but any role can use a name.
 */
static bool
decodes_time(Oid function)
{
	Oid			support = get_func_support(function);
	FmgrInfo	info;

	if (!OidIsValid(support))
		return false;
	/* loads no library: the planner has called it when it saw the function */
	fmgr_info(support, &info);
	return info.fn_addr == snowflake_timestamp_support;
}

/* An expression without relabelling and the like, which do not change a time. */
Node *
snowflake_timefilter_strip(Node *node)
{
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	return node;
}

static bool
may_execute(Oid function)
{
	return object_aclcheck(ProcedureRelationId, function, GetUserId(),
						   ACL_EXECUTE) == ACLCHECK_OK;
}

/*
 * Is an expression the time of an ID that differs from row to row?  Only that can
 * be looked up in an index.  For anything else a comparison stays what it is, an
 * error for what is no ID included.
 */
bool
snowflake_timefilter_decoded(Node *node, SnowflakeDecodedId *decoded)
{
	Oid			function;
	List	   *args;

	node = snowflake_timefilter_strip(node);
	if (IsA(node, FuncExpr))
	{
		function = ((FuncExpr *) node)->funcid;
		args = ((FuncExpr *) node)->args;
	}
	else if (IsA(node, OpExpr))
	{
		function = ((OpExpr *) node)->opfuncid;
		args = ((OpExpr *) node)->args;
	}
	else
		return false;

	if (!decodes_time(function) || !contain_var_clause(linitial(args)))
		return false;
	/* no role may learn by the key what it may not compute */
	if (!may_execute(function))
		return false;

	decoded->id = linitial(args);
	decoded->layout = list_length(args) > 1 ? lsecond(args) : NULL;
	return true;
}

/* An expression of a domain, as one of its base type. */
static Node *
as_base_type(Node *node)
{
	Oid			type = exprType(node);
	Oid			base = getBaseType(type);

	if (type == base)
		return node;
	return applyRelabelType(node, base, -1, InvalidOid, COERCE_IMPLICIT_CAST, -1,
							false);
}

/*
 * The largest ID before a time, or with "inclusive", not after it, for a comparison
 * with a decoded ID: a constant if that can be said already, otherwise a call of
 * snowflake_before() or snowflake_until().  NULL if the user may not call it.
 *
 * The function is looked up in the schema of the one that is simplified, which
 * belongs to the same extension: no other role can have created one of this name there.
 */
static Node *
make_time_bound(SupportRequestSimplify *request, SnowflakeDecodedId *decoded, Node *time,
				bool inclusive)
{
	Oid			types[2];
	List	   *args = list_make1(copyObject(time));
	Oid			function;

	if (decoded->layout == NULL)
	{
		Node	   *constant = snowflake_timerange_constant(request->root, time, inclusive);

		if (constant != NULL)
			return constant;
	}
	else
		args = lappend(args, copyObject(decoded->layout));

	types[0] = exprType(time);
	types[1] = TEXTOID;
	function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
							   CStringGetDatum(inclusive ? "snowflake_until" : "snowflake_before"),
							   PointerGetDatum(buildoidvector(types, list_length(args))),
							   ObjectIdGetDatum(get_func_namespace(request->fcall->funcid)));
	if (!OidIsValid(function) || !may_execute(function))
		return NULL;

	/* a constant, if the layout and the time are */
	return eval_const_expressions(request->root,
								  (Node *) makeFuncExpr(function, INT8OID, args,
														InvalidOid,
														exprCollation(decoded->layout),
														COERCE_EXPLICIT_CALL));
}

/* Would evaluating that twice, where it was written once, be noticed? */
static bool
must_be_evaluated_once(Node *node)
{
	return contain_volatile_functions(node) || contain_subplans(node);
}

/* "id is in what lies between two bounds", or NULL */
static Node *
compare_id_between(SupportRequestSimplify *request, SnowflakeDecodedId *decoded, Node *time)
{
	Node	   *before;
	Node	   *until;

	if (must_be_evaluated_once(decoded->id) || must_be_evaluated_once(time) ||
		(decoded->layout != NULL && must_be_evaluated_once(decoded->layout)))
		return NULL;

	before = make_time_bound(request, decoded, time, false);
	until = make_time_bound(request, decoded, time, true);
	if (before == NULL || until == NULL)
		return NULL;
	return (Node *) make_andclause(list_make2(snowflake_timerange_lower(decoded->id, before),
											  snowflake_timerange_upper(decoded->id, until)));
}

/* Is that what a subquery returns, as in NOT IN?  Only an equality can be hashed. */
static bool
is_sublink_output(Node *node)
{
	Param	   *param = (Param *) snowflake_timefilter_strip(node);

	return IsA(param, Param) && param->paramkind == PARAM_SUBLINK;
}

/* "the ID's time OP time", as a comparison of the ID, or NULL */
static Node *
compare_id_with(SupportRequestSimplify *request, SnowflakeDecodedId *decoded,
				StrategyNumber strategy, Node *time)
{
	bool		lower = strategy >= BTGreaterEqualStrategyNumber;
	bool		inclusive = strategy == BTLessEqualStrategyNumber ||
	strategy == BTGreaterStrategyNumber;
	Node	   *bound;

	if (strategy == BTEqualStrategyNumber)
		return contain_var_clause(time) || is_sublink_output(time) ? NULL :
			compare_id_between(request, decoded, time);

	bound = make_time_bound(request, decoded, time, inclusive);
	if (bound == NULL)
		return NULL;
	return lower ? snowflake_timerange_lower(decoded->id, bound) :
		snowflake_timerange_upper(decoded->id, bound);
}

/*
 * Is that a column of a subquery, into which a condition may be pushed?
 *
 * Core simplifies the condition of an EXISTS by the query around it: then the number may
 * be that of no table there, or of another one, which costs an index at most.
 */
static bool
may_be_pushed_down(PlannerInfo *root, Node *node)
{
	Var		   *var = (Var *) snowflake_timefilter_strip(node);

	return root != NULL && root->parse != NULL && IsA(var, Var) && var->varlevelsup == 0 &&
		var->varno > 0 && var->varno <= list_length(root->parse->rtable) &&
		rt_fetch(var->varno, root->parse->rtable)->rtekind == RTE_SUBQUERY;
}

/* Is that time a part of the expression? */
static bool
contains(Node *node, void *time)
{
	if (node == NULL)
		return false;
	return equal(snowflake_timefilter_strip(node), time) ||
		expression_tree_walker(node, contains, time);
}

/*
 * Is the query grouped by that time, or by a condition on it, in some of its grouping sets
 * only?  Where it is not, that is NULL.  Until PostgreSQL 17 core finds it by the expression,
 * and so it has to stay: two comparisons in place of one would be looked up one by one.
 */
static bool
is_null_in_some_groups(PlannerInfo *root, Node *time)
{
	Node	   *stripped = snowflake_timefilter_strip(time);
	ListCell   *lc;

	if (!GROUPED_EXPRESSIONS_ARE_LOOKED_UP || root == NULL || root->parse == NULL ||
		root->parse->groupingSets == NIL)
		return false;
	foreach(lc, get_sortgrouplist_exprs(root->parse->groupClause, root->parse->targetList))
		if (equal(snowflake_timefilter_strip(lfirst(lc)), stripped) ||
			(exprType(lfirst(lc)) == BOOLOID && contains(lfirst(lc), stripped)))
		return true;
	return false;
}

/* A call of one of core's operators. */
static Node *
make_core_call(Oid opno, Node *left, Node *right)
{
	OpExpr	   *call = (OpExpr *) make_opclause(opno, BOOLOID, false, (Expr *) left,
												(Expr *) right, InvalidOid, InvalidOid);

	set_opfuncid(call);
	return (Node *) call;
}

/* "left OP right" by core's operator of timestamptz, timestamp and date. */
static Node *
compare_by_core(Node *left, StrategyNumber strategy, Node *right)
{
	TypeCacheEntry *typcache = lookup_type_cache(TIMESTAMPTZOID,
												 TYPECACHE_BTREE_OPFAMILY);
	Oid			opno = get_opfamily_member(typcache->btree_opf, exprType(left),
										   exprType(right), strategy);

	return OidIsValid(opno) ? make_core_call(opno, left, right) : NULL;
}

/* Simplify a comparison of a snowflake_time with a time, or the other way round. */
static Node *
simplify_comparison(Node *node, StrategyNumber strategy)
{
	SupportRequestSimplify *request = (SupportRequestSimplify *) node;
	Node	   *left;
	Node	   *right;
	SnowflakeDecodedId left_id;
	SnowflakeDecodedId right_id;
	bool		left_decoded;
	bool		right_decoded;
	Node	   *simplified = NULL;

	if (!IsA(node, SupportRequestSimplify))
		return NULL;

	left = as_base_type(linitial(request->fcall->args));
	right = as_base_type(lsecond(request->fcall->args));

	left_decoded = snowflake_timefilter_decoded(left, &left_id) &&
		!is_null_in_some_groups(request->root, left);
	right_decoded = snowflake_timefilter_decoded(right, &right_id) &&
		!is_null_in_some_groups(request->root, right);
	if (left_decoded && !right_decoded)
		simplified = compare_id_with(request, &left_id, strategy, right);
	else if (right_decoded && !left_decoded)
		simplified = compare_id_with(request, &right_id,
									 BTMaxStrategyNumber + 1 - strategy, left);
	else if ((may_be_pushed_down(request->root, left) && !contain_var_clause(right)) ||
			 (may_be_pushed_down(request->root, right) && !contain_var_clause(left)))
		return NULL;

	return simplified != NULL ? simplified : compare_by_core(left, strategy, right);
}

Datum
snowflake_time_lt_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0),
										  BTLessStrategyNumber));
}

Datum
snowflake_time_le_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0),
										  BTLessEqualStrategyNumber));
}

Datum
snowflake_time_eq_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0),
										  BTEqualStrategyNumber));
}

Datum
snowflake_time_ge_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0),
										  BTGreaterEqualStrategyNumber));
}

Datum
snowflake_time_gt_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify_comparison((Node *) PG_GETARG_POINTER(0),
										  BTGreaterStrategyNumber));
}

/* Simplify "time <@ range" and "range @> time", of a tstzrange or tstzmultirange. */
Datum
snowflake_time_range_support(PG_FUNCTION_ARGS)
{
	SupportRequestSimplify *request = (SupportRequestSimplify *) PG_GETARG_POINTER(0);
	bool		contains;
	bool		multirange;
	Node	   *time;
	Node	   *range;
	SnowflakeDecodedId decoded;
	Node	   *simplified;
	Oid			opno;

	if (!IsA(request, SupportRequestSimplify))
		PG_RETURN_POINTER(NULL);

	time = as_base_type(linitial(request->fcall->args));
	range = as_base_type(lsecond(request->fcall->args));
	contains = exprType(time) != TIMESTAMPTZOID;
	if (contains)
	{
		Node	   *swap = time;

		time = range;
		range = swap;
	}
	multirange = exprType(range) == TSTZMULTIRANGEOID;

	/* a multirange has any number of bounds */
	if (!multirange && snowflake_timefilter_decoded(time, &decoded) &&
		!is_null_in_some_groups(request->root, time) &&
		(simplified = compare_id_between(request, &decoded, range)) != NULL)
		PG_RETURN_POINTER(simplified);

	if (may_be_pushed_down(request->root, time) && !contain_var_clause(range))
		PG_RETURN_POINTER(NULL);

	if (multirange)
		opno = contains ? OID_MULTIRANGE_CONTAINS_ELEM_OP : OID_MULTIRANGE_ELEM_CONTAINED_OP;
	else
		opno = contains ? OID_RANGE_CONTAINS_ELEM_OP : OID_RANGE_ELEM_CONTAINED_OP;
	PG_RETURN_POINTER(contains ? make_core_call(opno, range, time) :
					  make_core_call(opno, time, range));
}

/*
 * Simplify the decoding itself, for a constant ID of the server's layout: it is not
 * immutable, as timerange.c says of bounds, but may go into a plan as these do.
 * An ID that is none is left to raise its error when it is decoded.
 */
Datum
snowflake_timestamp_support(PG_FUNCTION_ARGS)
{
	SupportRequestSimplify *request = (SupportRequestSimplify *) PG_GETARG_POINTER(0);
	const SnowflakeLayout *layout = &snowflake_server_layout;
	FuncExpr   *call;
	Const	   *id;
	int64		value;
	TimestampTz ts;

	if (!IsA(request, SupportRequestSimplify) || !snowflake_timerange_may_fold(request->root))
		PG_RETURN_POINTER(NULL);

	call = request->fcall;
	id = linitial(call->args);
	if (list_length(call->args) != 1 || !IsA(id, Const) || id->constisnull)
		PG_RETURN_POINTER(NULL);

	value = DatumGetInt64(id->constvalue);
	if (value < 0 || value > layout->max_id)
		PG_RETURN_POINTER(NULL);
	ts = snowflake_layout_tick_start(layout, snowflake_layout_get_tick(layout, value));
	PG_RETURN_POINTER(makeConst(call->funcresulttype, -1, InvalidOid, sizeof(TimestampTz),
								TimestampTzGetDatum(ts), false, FLOAT8PASSBYVAL));
}
