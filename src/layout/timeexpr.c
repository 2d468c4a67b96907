/*-------------------------------------------------------------------------
 *
 * timeexpr.c
 *	  Recognizing the time of an ID in an expression.
 *
 * This file reads expressions: a call of a decoding function, and AT TIME ZONE, a cast to a
 * date or a timestamp, date_trunc() or extract() of its result.  It knows these by their
 * functions: those of core have fixed OIDs, and those of this extension have
 * snowflake_timestamp_support() as their support function.  No name is looked up, because
 * any role can use a name.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation_d.h"
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
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "layout/planner.h"
#include "layout/server_layout.h"

PG_FUNCTION_INFO_V1(snowflake_timestamp_support);

/*
 * Does the function have the given support function?  Only a superuser can give it
 * one, but any role can use a name.
 */
bool
snowflake_timeexpr_is_supported_by(Oid function, PGFunction support)
{
	Oid			its = get_func_support(function);
	FmgrInfo	info;

	if (!OidIsValid(its))
		return false;
	/* this loads no library: the planner called it when it met the function */
	fmgr_info(its, &info);
	return info.fn_addr == support;
}

/* The operator family with which core compares timestamptz, timestamp and date. */
Oid
snowflake_timeexpr_opfamily(void)
{
	static Oid	opfamily = InvalidOid;

	if (!OidIsValid(opfamily))
		opfamily = lookup_type_cache(TIMESTAMPTZOID, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
	return opfamily;
}

/* Is that one of the families? */
bool
snowflake_timeexpr_is_among(List *opfamilies)
{
	return list_member_oid(opfamilies, snowflake_timeexpr_opfamily());
}

/* Returns an expression without relabelling, which does not change a time. */
Node *
snowflake_timeexpr_strip(Node *node)
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

/* Would evaluating the expression more often than it was written make a difference? */
bool
snowflake_timeexpr_must_be_evaluated_once(Node *node)
{
	return contain_volatile_functions(node) || contain_subplans(node);
}

/* Returns the function that is called, and sets *args; InvalidOid if it is not a call. */
static Oid
get_call(Node *node, List **args)
{
	if (IsA(node, FuncExpr))
	{
		*args = ((FuncExpr *) node)->args;
		return ((FuncExpr *) node)->funcid;
	}
	if (IsA(node, OpExpr))
	{
		*args = ((OpExpr *) node)->args;
		return ((OpExpr *) node)->opfuncid;
	}
	return InvalidOid;
}

/* The server's layout as a text: the name of a preset, or the canonical text */
static const char *
server_layout_text(void)
{
	static char text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	const char *name = snowflake_layout_name(&snowflake_server_layout);

	if (name != NULL)
		return name;
	snowflake_layout_print(&snowflake_server_layout, text, sizeof(text));
	return text;
}

/* Is the layout the server's, for as long as a plan may be used? */
static bool
is_server_layout(Node *layout)
{
	const char *text = snowflake_timeexpr_get_text(layout);

	return snowflake_layout_is_fixed && text != NULL && strcmp(text, server_layout_text()) == 0;
}

/*
 * Is the expression the time of an ID that differs from row to row, decoded with one layout?
 * Only that can be looked up in an index.  A comparison of anything else stays as it is, and
 * so do the errors for a number that is not an ID and for a text that is not a layout.
 */
static bool
read_decoded(Oid function, List *args, SnowflakeTimeOfId *time)
{
	if (!snowflake_timeexpr_is_supported_by(function, snowflake_timestamp_support))
		return false;

	memset(time, 0, sizeof(*time));
	time->decoded_by = function;
	time->id = linitial(args);
	if (list_length(args) > 1 && !is_server_layout(lsecond(args)))
		time->layout = lsecond(args);
	if (!contain_var_clause(time->id) || snowflake_timeexpr_must_be_evaluated_once(time->id) ||
		(time->layout != NULL && !snowflake_timebound_is_known_first(time->layout)))
		return false;
	/* a role must not learn from the key what it may not compute */
	return may_execute(function);
}

/* The unit of a call of date_trunc() or the like, or NULL if it is not known here. */
static const char *
get_unit(Node *node)
{
	const char *name = snowflake_timeexpr_get_text(node);

	return name != NULL ? snowflake_timeperiod_unit(name) : NULL;
}

/* Is the node the time of an ID, not truncated, as an instant or as a local time? */
bool
snowflake_timeexpr_read_plain(Node *node, bool is_local, SnowflakeTimeOfId *time)
{
	return snowflake_timeexpr_read(node, time) && time->is_local == is_local && time->unit == NULL;
}

/* Are the arguments of date_trunc() a unit and the time of an ID? */
static bool
read_truncated_time(List *args, bool is_local, SnowflakeTimeOfId *time)
{
	const char *unit = get_unit(linitial(args));

	if (unit == NULL || !snowflake_timeexpr_read_plain(lsecond(args), is_local, time))
		return false;
	time->unit = unit;
	if (list_length(args) > 2)
		time->zone = lthird(args);
	return true;
}

/* Do the arguments of extract() ask for the year of the time of an ID? */
static bool
read_year(List *args, SnowflakeTimeOfId *time)
{
	const char *unit = get_unit(linitial(args));

	if (unit == NULL || strcmp(unit, "year") != 0 || !snowflake_timeexpr_read(lsecond(args), time) ||
		time->is_year || (time->unit != NULL && (!time->is_local || strcmp(time->unit, "day") != 0)))
		return false;
	time->is_local = true;
	time->is_year = true;
	time->unit = "year";
	return true;
}

/* Is the node the time of an ID, or derived from it in a way that is known here? */
bool
snowflake_timeexpr_read(Node *node, SnowflakeTimeOfId *time)
{
	List	   *args;
	Oid			function;

	node = snowflake_timeexpr_strip(node);
	function = get_call(node, &args);
	switch (function)
	{
		case InvalidOid:
			return false;
		case F_DATE_TIMESTAMPTZ:
		case F_DATE_TIMESTAMP:
		case F_TIMESTAMP_TIMESTAMPTZ:
			if (!snowflake_timeexpr_read_plain(linitial(args), function == F_DATE_TIMESTAMP, time))
				return false;
			time->is_local = true;
			time->unit = function == F_TIMESTAMP_TIMESTAMPTZ ? NULL : "day";
			return true;
		case F_TIMEZONE_TEXT_TIMESTAMPTZ:
			if (!snowflake_timeexpr_read_plain(lsecond(args), false, time))
				return false;
			time->is_local = true;
			time->zone = linitial(args);
			return true;
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT:
			return read_truncated_time(args, false, time);
		case F_DATE_TRUNC_TEXT_TIMESTAMP:
			return read_truncated_time(args, true, time);
		case F_EXTRACT_TEXT_TIMESTAMPTZ:
		case F_EXTRACT_TEXT_TIMESTAMP:
		case F_EXTRACT_TEXT_DATE:
		case F_DATE_PART_TEXT_TIMESTAMPTZ:
		case F_DATE_PART_TEXT_TIMESTAMP:
			return read_year(args, time);
		default:
			return exprType(node) == TIMESTAMPTZOID && read_decoded(function, args, time);
	}
}

/*
 * Returns the ID with which the expression ascends, though not strictly, whatever the session's
 * time zone is; or NULL.  The time of an ID ascends, and so do local and truncated times in
 * UTC, where clocks are never set.
 */
Node *
snowflake_timeexpr_ascends_with(Node *node)
{
	SnowflakeTimeOfId time;
	const char *zone;

	if (!snowflake_timeexpr_read(node, &time) || time.is_year)
		return NULL;
	if (!time.is_local && time.unit == NULL)
		return time.id;
	zone = time.zone != NULL ? snowflake_timeexpr_get_text(time.zone) : NULL;
	return zone != NULL && pg_strcasecmp(zone, "UTC") == 0 ? time.id : NULL;
}

/*
 * May a value that depends on the server's layout be computed during planning?  It may go into
 * a plan: the layout of a preloaded library changes with a restart only.  But an expression
 * that is simplified without a query is stored, such as the predicate of an index, or compared
 * with a stored one.
 */
bool
snowflake_timeexpr_may_fold(const PlannerInfo *root)
{
	return snowflake_layout_is_fixed && root != NULL && root->parse != NULL;
}

/*
 * Returns a call of a function of this extension, or NULL if the user may not call it.  "first"
 * is the declared type of its first argument; all others are texts.
 *
 * It is looked up in the schema of the decoding function, which belongs to the
 * same extension: no other role can have created one of this name there.
 */
Node *
snowflake_timeexpr_call(Oid decoded_by, const char *name, Oid first, Oid result, List *args)
{
	Oid			types[] = {first, TEXTOID, TEXTOID};
	oidvector  *declared = buildoidvector(types, list_length(args));
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										   CStringGetDatum(name), PointerGetDatum(declared),
										   ObjectIdGetDatum(get_func_namespace(decoded_by)));

	if (!OidIsValid(function) || !may_execute(function))
		return NULL;
	return (Node *) makeFuncExpr(function, result, args, InvalidOid,
								 list_length(args) > 1 ? DEFAULT_COLLATION_OID : InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

/* A text, as a constant. */
Node *
snowflake_timeexpr_text(const char *text)
{
	return (Node *) makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
							  CStringGetTextDatum(text), false, false);
}

/* Returns a constant text, or NULL if the node is not one. */
const char *
snowflake_timeexpr_get_text(Node *node)
{
	Const	   *constant = (Const *) node;

	return IsA(node, Const) && constant->consttype == TEXTOID && !constant->constisnull ?
		TextDatumGetCString(constant->constvalue) : NULL;
}

/*
 * Returns a call that decodes with the server's layout as decoding with that layout as an
 * argument, which is immutable.  NULL if the user may not call both functions.
 */
static Node *
make_immutable(FuncExpr *call)
{
	Node	   *id = applyRelabelType(linitial(call->args), INT8OID, -1, InvalidOid,
									  COERCE_IMPLICIT_CAST, -1, false);

	if (!may_execute(call->funcid))
		return NULL;
	return snowflake_timeexpr_call(call->funcid, "snowflake_timestamp", INT8OID, TIMESTAMPTZOID,
								   lappend(list_make1(id), snowflake_timeexpr_text(server_layout_text())));
}

/* Does the expression contain min() or max() of times? */
static bool
has_first_or_last(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Oid			function = ((Aggref *) node)->aggfnoid;

		return function == F_MIN_TIMESTAMPTZ || function == F_MAX_TIMESTAMPTZ;
	}
	return expression_tree_walker(node, has_first_or_last, context);
}

/*
 * Simplify the decoding itself.  The time of a constant ID of the server's layout is a
 * constant; a number that is not such an ID raises its error when it is decoded.
 *
 * In a query for the first or the last of all times, decoding becomes immutable: core takes
 * min() and max() from an index only for such an expression.
 */
Datum
snowflake_timestamp_support(PG_FUNCTION_ARGS)
{
	SupportRequestSimplify *request = (SupportRequestSimplify *) PG_GETARG_POINTER(0);
	const SnowflakeLayout *layout = &snowflake_server_layout;
	FuncExpr   *call;
	Const	   *id;
	int64		value;

	if (!IsA(request, SupportRequestSimplify) || !snowflake_timeexpr_may_fold(request->root))
		PG_RETURN_POINTER(NULL);

	call = request->fcall;
	if (list_length(call->args) != 1)
		PG_RETURN_POINTER(NULL);
	id = linitial(call->args);
	if (!IsA(id, Const))
	{
		const Query *query = request->root->parse;

		PG_RETURN_POINTER(query->hasAggs && query->groupClause == NIL &&
						  query->groupingSets == NIL &&
						  has_first_or_last((Node *) query->targetList, NULL) ?
						  make_immutable(call) : NULL);
	}
	if (id->constisnull)
		PG_RETURN_POINTER(NULL);

	value = DatumGetInt64(id->constvalue);
	if (value < 0 || value > layout->max_id)
		PG_RETURN_POINTER(NULL);
	PG_RETURN_POINTER(snowflake_timebound_number(TIMESTAMPTZOID,
												 snowflake_layout_get_time(layout, value)));
}
