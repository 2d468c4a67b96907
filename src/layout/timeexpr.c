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
	Const	   *name = (Const *) layout;

	return snowflake_layout_is_fixed && IsA(layout, Const) && !name->constisnull &&
		strcmp(TextDatumGetCString(name->constvalue), server_layout_text()) == 0;
}

/*
 * Is the expression the time of an ID that differs from row to row, decoded with one layout?
 * Only that can be looked up in an index.  A comparison of anything else stays as it is, and
 * so do the errors for a number that is not an ID and for a text that is not a layout.
 */
static bool
read_decoded(Node *node, SnowflakeDecodedId *decoded)
{
	List	   *args;

	node = snowflake_timeexpr_strip(node);
	decoded->function = get_call(node, &args);
	if (!OidIsValid(decoded->function) || exprType(node) != TIMESTAMPTZOID ||
		!snowflake_timeexpr_is_supported_by(decoded->function, snowflake_timestamp_support))
		return false;

	decoded->id = linitial(args);
	decoded->layout = list_length(args) > 1 ? lsecond(args) : NULL;
	if (decoded->layout != NULL && is_server_layout(decoded->layout))
		decoded->layout = NULL;
	if (!contain_var_clause(decoded->id) || snowflake_timeexpr_must_be_evaluated_once(decoded->id) ||
		(decoded->layout != NULL && !snowflake_timebound_is_known_first(decoded->layout)))
		return false;
	/* a role must not learn from the key what it may not compute */
	return may_execute(decoded->function);
}

/* The unit of a call of date_trunc() or the like, or NULL if it is not known here. */
static const char *
get_unit(Node *node)
{
	Const	   *constant = (Const *) node;

	if (!IsA(node, Const) || constant->constisnull || constant->consttype != TEXTOID)
		return NULL;
	return snowflake_timeperiod_unit(TextDatumGetCString(constant->constvalue));
}

/* Is the node the time of an ID, not truncated, as an instant or as a local time? */
static bool
read_plain_time(Node *node, bool is_local, SnowflakeTimeOfId *time)
{
	return snowflake_timeexpr_read(node, time) && time->is_local == is_local &&
		time->unit == NULL && !time->is_year;
}

/* Are the arguments of date_trunc() a unit and the time of an ID? */
static bool
read_truncated_time(List *args, bool is_local, SnowflakeTimeOfId *time)
{
	const char *unit = get_unit(linitial(args));

	if (unit == NULL || !read_plain_time(lsecond(args), is_local, time))
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
		time->is_year || (time->unit != NULL && strcmp(time->unit, "day") != 0) ||
		(!time->is_local && time->unit != NULL))
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
			if (!read_plain_time(linitial(args), function == F_DATE_TIMESTAMP, time))
				return false;
			time->is_local = true;
			time->unit = "day";
			return true;
		case F_TIMESTAMP_TIMESTAMPTZ:
			if (!read_plain_time(linitial(args), false, time))
				return false;
			time->is_local = true;
			return true;
		case F_TIMEZONE_TEXT_TIMESTAMPTZ:
			if (!read_plain_time(lsecond(args), false, time))
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
			memset(time, 0, sizeof(*time));
			return read_decoded(node, &time->decoded);
	}
}

/* Is the node the time of an ID as it was decoded, an instant? */
bool
snowflake_timeexpr_read_instant(Node *node, SnowflakeTimeOfId *time)
{
	return read_plain_time(node, false, time);
}

/*
 * Does the expression ascend with an ID, though not strictly, whatever the session's
 * time zone is?  The time of the ID does, and so do local and truncated times in
 * UTC, where clocks are never set.
 */
bool
snowflake_timeexpr_ascends(Node *node, SnowflakeDecodedId *decoded)
{
	SnowflakeTimeOfId time;
	Const	   *zone;

	if (!snowflake_timeexpr_read(node, &time) || time.is_year)
		return false;
	*decoded = time.decoded;
	if (!time.is_local && time.unit == NULL)
		return true;
	zone = (Const *) time.zone;
	return zone != NULL && IsA(zone, Const) && !zone->constisnull &&
		pg_strcasecmp(TextDatumGetCString(zone->constvalue), "UTC") == 0;
}

/*
 * May a value that depends on the server's layout be computed during planning?
 *
 * Such a value may go into a plan: the layout of a preloaded library changes with a
 * restart only, which no plan survives.  But it is not immutable, and an expression
 * that is simplified without a query is one to be stored, such as the predicate of an
 * index, or to be compared with a stored one.
 */
bool
snowflake_timeexpr_may_fold(const PlannerInfo *root)
{
	return snowflake_layout_is_fixed && root != NULL && root->parse != NULL;
}

/*
 * Returns a function of this extension, or InvalidOid if the user may not call it.
 * The types of its arguments end with the first InvalidOid.
 *
 * It is looked up in the schema of the decoding function, which belongs to the
 * same extension: no other role can have created one of this name there.
 */
Oid
snowflake_timeexpr_function(const SnowflakeDecodedId *decoded, const char *name,
							Oid first, Oid second, Oid third)
{
	Oid			types[] = {first, second, third};
	int			n = OidIsValid(third) ? 3 : OidIsValid(second) ? 2 : 1;
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										   CStringGetDatum(name),
										   PointerGetDatum(buildoidvector(types, n)),
										   ObjectIdGetDatum(get_func_namespace(decoded->function)));

	return OidIsValid(function) && may_execute(function) ? function : InvalidOid;
}

/* A text, as a constant. */
Node *
snowflake_timeexpr_text(const char *text)
{
	return (Node *) makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
							  CStringGetTextDatum(text), false, false);
}

/*
 * Returns a call that decodes with the server's layout as decoding with that layout as an
 * argument, which is immutable.  NULL if the user may not call both functions.
 */
static Node *
make_immutable(FuncExpr *call)
{
	SnowflakeDecodedId decoded = {.function = call->funcid};
	Oid			function = snowflake_timeexpr_function(&decoded, "snowflake_timestamp", INT8OID,
													   TEXTOID, InvalidOid);
	Node	   *id = linitial(call->args);
	List	   *arguments;

	if (!OidIsValid(function) || !may_execute(call->funcid))
		return NULL;
	id = applyRelabelType(id, INT8OID, -1, InvalidOid, COERCE_IMPLICIT_CAST, -1, false);
	arguments = list_make1(id);
	arguments = lappend(arguments, snowflake_timeexpr_text(server_layout_text()));
	return (Node *) makeFuncExpr(function, call->funcresulttype, arguments, InvalidOid,
								 DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
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
 * Simplify the decoding itself.
 *
 * The time of a constant ID of the server's layout is a constant.  A number that is
 * not such an ID is left alone, and raises its error when it is decoded.
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
	value = snowflake_layout_tick_start(layout, snowflake_layout_get_tick(layout, value));
	PG_RETURN_POINTER(snowflake_timebound_number(TIMESTAMPTZOID, value));
}
