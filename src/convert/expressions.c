/*-------------------------------------------------------------------------
 *
 * expressions.c
 *	  Do indexes, constraints and statistics accept the new types?
 *
 * ALTER TABLE re-creates them from their definitions, after the types have been
 * changed, and fails if a function, an operator or an operator class does not
 * take the new type.  Here the definitions are parsed as they would be then, as
 * far as that depends on types, before anything is changed: the columns of a
 * table in a ParseState are given the types that they will have.
 *
 * Everything is done with the rights of the owner of the table, as it will be,
 * and needs the locks of locks.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "executor/spi.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_clause.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_oper.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/compat.h"
#include "convert/convert.h"
#include "convert/query.h"

/* A definition that has to be parsed again */
typedef struct Definition
{
	Oid			relid;
	Oid			owner;
	char	   *object;			/* in words */
	char	   *sql;
} Definition;

/*
 * What may depend on the columns.  That an index or a constraint has other
 * columns only does not hurt.
 */
static const char *definitions_query =
"WITH changing AS ("
"	SELECT relid, array_agg(attnum) AS attnums"
"	FROM ROWS FROM (unnest($1), unnest($2)) AS c (relid, attnum) GROUP BY relid"
") "
"SELECT relid, relowner, pg_describe_object(d.classid, d.oid, 0) AS object, d.definition "
"FROM changing JOIN pg_class ON pg_class.oid = relid, LATERAL ("
"	SELECT 'pg_class'::regclass AS classid, indexrelid AS oid, pg_get_indexdef(indexrelid) AS definition"
"	FROM pg_index WHERE indrelid = relid AND NOT indisexclusion"
"		AND (indkey::int2[] && attnums OR indexprs IS NOT NULL OR indpred IS NOT NULL)"
"  UNION ALL"
"	SELECT 'pg_constraint'::regclass, oid, 'ALTER TABLE t ADD ' || pg_get_constraintdef(oid)"
"	FROM pg_constraint WHERE conrelid = relid"
"		AND (contype = 'x' OR contype = 'c' AND conkey && attnums)"
"  UNION ALL"
"	SELECT 'pg_statistic_ext'::regclass, oid, pg_get_statisticsobjdef(oid)"
"	FROM pg_statistic_ext WHERE stxrelid = relid AND stxexprs IS NOT NULL"
") d "
"ORDER BY relid, d.classid, d.oid";

/* A namespace of the table with the types that its columns will have */
static ParseState *
future_namespace(Conversion *conv, Relation rel)
{
	ParseState *pstate = make_parsestate(NULL);
	ParseNamespaceItem *item = addRangeTableEntryForRelation(pstate, rel, AccessShareLock,
															 NULL, false, true);
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (column->relid == RelationGetRelid(rel) && OidIsValid(column->new_type))
			item->p_nscolumns[column->attnum - 1].p_vartype = column->new_type;
	}
	addNSItemToQuery(pstate, item, false, true, true);

	/* for check_range(): there are no hooks */
	pstate->p_ref_hook_state = rel;
	return pstate;
}

/*
 * An expression of a smallint is often one of an integer, made of it by a cast.
 * The cast stays, by whatever function leads from the new type to the old one,
 * and fails for every snowflake.
 */
static bool
narrows_snowflake(Node *node, void *context)
{
	TupleDesc	today = RelationGetDescr((Relation) context);

	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;
		Node	   *argument = call->args == NIL ? NULL :
		strip_implicit_coercions(linitial(call->args));
		bool		is_cast = call->funcformat != COERCE_EXPLICIT_CALL ||
		call->funcid == F_INT4_INT8 || call->funcid == F_INT2_INT8;

		if (is_cast &&
			(call->funcresulttype == INT4OID || call->funcresulttype == INT2OID) &&
			argument != NULL && IsA(argument, Var) && ((Var *) argument)->varattno > 0 &&
			((Var *) argument)->vartype !=
			TupleDescAttr(today, ((Var *) argument)->varattno - 1)->atttypid)
			return true;
	}
	return expression_tree_walker(node, narrows_snowflake, context);
}

static void
check_range(ParseState *pstate, Node *expression)
{
	if (narrows_snowflake(expression, pstate->p_ref_hook_state))
		ereport(ERROR,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("an expression would cast snowflakes to a type that is too narrow for them"),
				errhint("Drop it, convert, and create it again without the cast, in one transaction."));
}

/* Raises an error unless the expression of an index can be re-created. */
static Node *
check_expression(ParseState *pstate, Node *expression, bool is_predicate)
{
	if (expression == NULL)
		return NULL;
	if (is_predicate)
		expression = transformWhereClause(pstate, expression, EXPR_KIND_INDEX_PREDICATE, "WHERE");
	else
		expression = transformExpr(pstate, expression, EXPR_KIND_INDEX_EXPRESSION);
	assign_expr_collations(pstate, expression);
	check_range(pstate, expression);
	if (contain_mutable_functions((Node *) expression_planner((Expr *) copyObject(expression))))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				is_predicate ?
				errmsg("functions in index predicate must be marked IMMUTABLE") :
				errmsg("functions in index expression must be marked IMMUTABLE"));
	return expression;
}

/* The same for a column of an index; returns its operator class. */
static Oid
check_index_element(ParseState *pstate, IndexElem *element, const char *method, Oid *type)
{
	Node	   *expression = element->expr;

	if (element->name != NULL)
	{
		ColumnRef  *column = makeNode(ColumnRef);

		column->fields = list_make1(makeString(element->name));
		column->location = -1;
		expression = (Node *) column;
	}
	*type = exprType(check_expression(pstate, expression, false));
	return ResolveOpClass(element->opclass, *type, method, get_index_am_oid(method, false));
}

static void
check_exclusion(ParseState *pstate, Constraint *constraint)
{
	ListCell   *lc;

	foreach(lc, constraint->exclusions)
	{
		List	   *pair = lfirst(lc);
		List	   *operator_name = lsecond(pair);
		Oid			type;
		Oid			opclass = check_index_element(pstate, linitial(pair),
												  constraint->access_method, &type);
		Oid			operator = list_length(operator_name) == 0 ? InvalidOid :
		compatible_oper_opid(operator_name, type, type, false);

		if (get_op_opfamily_strategy(operator, get_opclass_family(opclass)) == 0)
			ereport(ERROR,
					errcode(ERRCODE_WRONG_OBJECT_TYPE),
					errmsg("operator %s is not a member of the operator family of its column",
						   get_opname(operator)));
	}
	check_expression(pstate, constraint->where_clause, true);
}

static void
check_definition(ParseState *pstate, const char *sql)
{
	Node	   *statement = linitial_node(RawStmt, raw_parser(sql, RAW_PARSE_DEFAULT))->stmt;
	ListCell   *lc;
	Oid			type;

	if (IsA(statement, IndexStmt))
	{
		IndexStmt  *index = (IndexStmt *) statement;

		foreach(lc, index->indexParams)
			check_index_element(pstate, lfirst(lc), index->accessMethod, &type);
		check_expression(pstate, index->whereClause, true);
	}
	else if (IsA(statement, CreateStatsStmt))
	{
		foreach(lc, ((CreateStatsStmt *) statement)->exprs)
		{
			Node	   *expression = lfirst_node(StatsElem, lc)->expr;

			if (expression != NULL)
				check_range(pstate, transformExpr(pstate, expression, EXPR_KIND_STATS_EXPRESSION));
		}
	}
	else
	{
		AlterTableCmd *command = linitial(castNode(AlterTableStmt, statement)->cmds);
		Constraint *constraint = castNode(Constraint, command->def);

		if (constraint->contype == CONSTR_EXCLUSION)
			check_exclusion(pstate, constraint);
		else
			check_range(pstate, transformWhereClause(pstate, constraint->raw_expr,
													 EXPR_KIND_CHECK_CONSTRAINT, "CHECK"));
	}
}

static void
definition_context(void *argument)
{
	const Definition *definition = argument;

	errcontext("checking %s with the new types of columns of table \"%s\"",
			   definition->object, get_rel_name(definition->relid));
}

/*
 * Raise the error that would come when the columns have their new types.  An
 * error is that of PostgreSQL, with a context that says what it is about.
 */
void
snowflake_convert_check_expressions(Conversion *conv)
{
	List	   *definitions = NIL;
	ListCell   *lc;

	snowflake_convert_query_columns(conv, definitions_query, false);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		Definition *definition = palloc(sizeof(Definition));

		definition->relid = snowflake_convert_oid(row, "relid");
		definition->owner = snowflake_convert_oid(row, "relowner");
		definition->object = snowflake_convert_text(row, "object");
		definition->sql = snowflake_convert_text(row, "definition");
		definitions = lappend(definitions, definition);
	}

	foreach(lc, definitions)
	{
		Definition *definition = lfirst(lc);
		Relation	rel = table_open(definition->relid, NoLock);
		ErrorContextCallback context;
		SavedRole	saved;

		context.callback = definition_context;
		context.arg = definition;
		context.previous = error_context_stack;
		error_context_stack = &context;
		snowflake_convert_become(definition->owner, 0, &saved);
		check_definition(future_namespace(conv, rel), definition->sql);
		snowflake_convert_return(&saved);
		error_context_stack = context.previous;
		table_close(rel, NoLock);
	}
}

/* Columns of the row type of a table are not rewritten with it. */
void
snowflake_convert_check_row_types(Conversion *conv)
{
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);
		Relation	rel;

		if (!OidIsValid(column->new_type))
			continue;
		rel = table_open(column->relid, NoLock);
		find_composite_type_dependencies(rel->rd_rel->reltype, rel, NULL);
		table_close(rel, NoLock);
	}
}
