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
 * ORDER BY can use it.
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
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(snowflake_lt_support);
PG_FUNCTION_INFO_V1(snowflake_le_support);
PG_FUNCTION_INFO_V1(snowflake_eq_support);
PG_FUNCTION_INFO_V1(snowflake_ge_support);
PG_FUNCTION_INFO_V1(snowflake_gt_support);

/* An argument as an integer: a snowflake is relabelled to bigint. */
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
									COERCE_IMPLICIT_CAST, -1, false);
	}
}

/*
 * The comparison as one of integers by core's operator of that btree
 * strategy, or NULL if the request is of another kind.
 */
static Node *
simplify(Node *request, StrategyNumber strategy)
{
	FuncExpr   *call;
	Node	   *left,
			   *right;
	Oid			opno;
	OpExpr	   *comparison;

	if (!IsA(request, SupportRequestSimplify))
		return NULL;

	call = ((SupportRequestSimplify *) request)->fcall;
	if (list_length(call->args) != 2)
		return NULL;

	left = as_integer(linitial(call->args));
	right = as_integer(lsecond(call->args));
	opno = get_opfamily_member(INTEGER_BTREE_FAM_OID,
							   exprType(left), exprType(right), strategy);
	if (!OidIsValid(opno))
		return NULL;

	comparison = (OpExpr *) make_opclause(opno, BOOLOID, false,
										  (Expr *) left, (Expr *) right,
										  InvalidOid, InvalidOid);
	set_opfuncid(comparison);
	return (Node *) comparison;
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
