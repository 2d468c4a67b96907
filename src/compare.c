/*-------------------------------------------------------------------------
 *
 * compare.c
 *	  Planner support for comparing snowflakes with each other and with
 *	  integers.
 *
 * A snowflake has the representation of an int8, and its operators run core's
 * comparison functions of int8.  The planner, though, knows more about core's
 * operators than about ours:
 *
 * - its estimators for inequalities interpolate inside a histogram's bin only
 *	 for types that they know, so a range over a bare snowflake column would be
 *	 estimated as if the bin's ends were all there is;
 * - an index on a bigint column is matched only by operators of core's own
 *	 family, so a foreign key of type bigint could not be looked up by the
 *	 snowflake that it references.
 *
 * So these support functions replace our operator by core's operator of the
 * same meaning, over the same arguments relabelled to bigint.  An index on the
 * snowflake column is still matched, because our operator families hold core's
 * integer operators as well (see the script).
 *
 * Equality of two snowflakes is left alone: the order of an index on a
 * snowflake column is known in terms of that operator, so a merge join and an
 * ORDER BY can use it.  For the same reason "id = 5" becomes that operator, with
 * the constant as a snowflake: then the planner knows that it is 5 wherever it
 * is joined to as well.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compare.h"
#include "compat.h"

PG_FUNCTION_INFO_V1(snowflake_lt_support);
PG_FUNCTION_INFO_V1(snowflake_le_support);
PG_FUNCTION_INFO_V1(snowflake_eq_support);
PG_FUNCTION_INFO_V1(snowflake_ge_support);
PG_FUNCTION_INFO_V1(snowflake_gt_support);

static Node *
make_comparison(Oid opno, Node *left, Node *right)
{
	OpExpr	   *comparison;

	comparison = (OpExpr *) make_opclause(opno, BOOLOID, false,
										  (Expr *) left, (Expr *) right,
										  InvalidOid, InvalidOid);
	set_opfuncid(comparison);
	return (Node *) comparison;
}

/*
 * An argument as an integer: a snowflake is relabelled to bigint.  As an
 * explicit cast, so that it is one in a query that is sent to another server,
 * where our operators may not be found.
 */
static Node *
as_integer(Node *arg)
{
	switch (exprType(arg))
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return arg;
		default:
			return applyRelabelType(arg, INT8OID, -1, InvalidOid,
									COERCE_EXPLICIT_CAST, -1, false);
	}
}

/*
 * If one side of an equality is a constant that could be a snowflake, the
 * comparison as one of snowflakes, or NULL.
 */
static Node *
equal_constant(Node *id, Node *constant)
{
	Oid			type = exprType(id);
	Const	   *number = (Const *) constant;
	int64		value;

	if (!IsA(constant, Const) || number->constisnull)
		return NULL;
	switch (number->consttype)
	{
		case INT2OID:
			value = DatumGetInt16(number->constvalue);
			break;
		case INT4OID:
			value = DatumGetInt32(number->constvalue);
			break;
		case INT8OID:
			value = DatumGetInt64(number->constvalue);
			break;
		default:
			return NULL;
	}
	if (value < 0)
		return NULL;

	return make_comparison(lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr, id,
						   (Node *) makeConst(type, -1, InvalidOid, sizeof(int64),
											  Int64GetDatum(value), false,
											  FLOAT8PASSBYVAL));
}

/*
 * "left OP right" by core's operator of integers of that btree strategy, where
 * either side is an integer or a snowflake.  NULL if core has none.
 */
Node *
snowflake_compare_integers(Node *left, Node *right, StrategyNumber strategy)
{
	Oid			opno;

	left = as_integer(left);
	right = as_integer(right);
	opno = get_opfamily_member(INTEGER_BTREE_FAM_OID,
							   exprType(left), exprType(right), strategy);
	if (!OidIsValid(opno))
		return NULL;
	return make_comparison(opno, left, right);
}

/* What the support function of that strategy answers to a request. */
static Node *
simplify(Node *request, StrategyNumber strategy)
{
	FuncExpr   *call;
	Node	   *left,
			   *right,
			   *equal;

	if (!IsA(request, SupportRequestSimplify))
		return NULL;

	call = ((SupportRequestSimplify *) request)->fcall;
	if (list_length(call->args) != 2)
		return NULL;

	left = linitial(call->args);
	right = lsecond(call->args);
	if (strategy == BTEqualStrategyNumber &&
		((equal = equal_constant(left, right)) != NULL ||
		 (equal = equal_constant(right, left)) != NULL))
		return equal;
	return snowflake_compare_integers(left, right, strategy);
}

Datum
snowflake_lt_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify((Node *) PG_GETARG_POINTER(0),
							   BTLessStrategyNumber));
}

Datum
snowflake_le_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify((Node *) PG_GETARG_POINTER(0),
							   BTLessEqualStrategyNumber));
}

Datum
snowflake_eq_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify((Node *) PG_GETARG_POINTER(0),
							   BTEqualStrategyNumber));
}

Datum
snowflake_ge_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify((Node *) PG_GETARG_POINTER(0),
							   BTGreaterEqualStrategyNumber));
}

Datum
snowflake_gt_support(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(simplify((Node *) PG_GETARG_POINTER(0),
							   BTGreaterStrategyNumber));
}
