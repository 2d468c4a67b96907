/*-------------------------------------------------------------------------
 *
 * tail.c
 *	  The rows of a table in the order of its IDs, up to the frontier.
 *
 * It reads the frontier first and takes a snapshot after that, which a single
 * statement cannot do with snowflake_frontier().
 *
 * The query runs with the caller's rights, and names all it uses with its schema.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "executor/tstoreReceiver.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/params.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/compat.h"
#include "mint/snapshot_frontier.h"

PG_FUNCTION_INFO_V1(snowflake_tail);

/* The table of a row type; an error if it has none that can be tailed. */
static Relation
open_table(Oid row_type)
{
	Oid			relid = OidIsValid(row_type) ? get_typ_typrelid(row_type) : InvalidOid;
	Relation	relation;

	if (!OidIsValid(relid))
		ereport(ERROR,
				errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("the first argument of snowflake_tail() must have the row type of a table"),
				errhint("Write NULL::tablename."));
	relation = relation_open(relid, AccessShareLock);

	/* others have no snapshot, or not the one that is taken here */
	if (relation->rd_rel->relkind != RELKIND_RELATION &&
		relation->rd_rel->relkind != RELKIND_PARTITIONED_TABLE &&
		relation->rd_rel->relkind != RELKIND_VIEW)
		ereport(ERROR,
				errcode(ERRCODE_WRONG_OBJECT_TYPE),
				errmsg("\"%s\" is not a table, partitioned table, or view",
					   RelationGetRelationName(relation)));
	return relation;
}

/* The column to go by: the named one, or the primary key if that is NULL. */
static const char *
find_column(Relation relation, const char *name)
{
	AttrNumber	attnum = InvalidAttrNumber;
	Form_pg_attribute attribute;

	if (name != NULL)
	{
		attnum = get_attnum(RelationGetRelid(relation), name);
		if (attnum <= 0)
			ereport(ERROR,
					errcode(ERRCODE_UNDEFINED_COLUMN),
					errmsg("column \"%s\" of relation \"%s\" does not exist",
						   name, RelationGetRelationName(relation)));
	}
	else
	{
		Oid			constraint;
		Bitmapset  *key = get_primary_key_attnos(RelationGetRelid(relation), false,
												 &constraint);
		int			member;

		if (!bms_get_singleton_member(key, &member))
			ereport(ERROR,
					errcode(ERRCODE_UNDEFINED_COLUMN),
					errmsg("relation \"%s\" has no primary key of one column",
						   RelationGetRelationName(relation)),
					errhint("Name the column whose snowflakes give the order."));
		attnum = member + FirstLowInvalidHeapAttributeNumber;
	}

	attribute = TupleDescAttr(RelationGetDescr(relation), attnum - 1);
	if (!IsBinaryCoercible(attribute->atttypid, INT8OID))
		ereport(ERROR,
				errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("column \"%s\" of relation \"%s\" is of type %s, not snowflake or bigint",
					   NameStr(attribute->attname), RelationGetRelationName(relation),
					   format_type_be(attribute->atttypid)));
	return quote_identifier(NameStr(attribute->attname));
}

/* Not strict, for the first argument is there for its type only. */
Datum
snowflake_tail(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		after = PG_ARGISNULL(1) ? -1 : PG_GETARG_INT64(1);
	int64		max_rows = PG_ARGISNULL(2) ? PG_INT64_MAX : PG_GETARG_INT32(2);
	const char *name = PG_ARGISNULL(3) ? NULL : NameStr(*PG_GETARG_NAME(3));
	SPIExecuteOptions options = {0};
	Relation	relation;
	const char *column;
	char	   *query;
	int64		values[3];
	int			spi_result;

	if (max_rows < 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("number of rows must not be negative, but is " INT64_FORMAT,
					   max_rows));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("snowflake_tail() needs the isolation level READ COMMITTED"),
				errdetail("This transaction keeps the snapshot that it has taken before, which may lack rows up to the frontier of now."));

	relation = open_table(get_fn_expr_argtype(fcinfo->flinfo, 0));
	column = find_column(relation, name);
	InitMaterializedSRF(fcinfo, 0);

	values[0] = after;
	values[1] = snowflake_snapshot_frontier_require("snowflake_tail()");
	values[2] = max_rows;
	SNOWFLAKE_INJECTION_POINT("snowflake-tail");

	/*
	 * Rows with the same ID, if the column is not unique, come together: a
	 * caller that goes on after the last row would miss those left out.
	 */
	query = psprintf("SELECT * FROM %s AS t"
					 " WHERE t.%s OPERATOR(pg_catalog.>) $1"
					 " AND t.%s OPERATOR(pg_catalog.<=) $2"
					 " ORDER BY t.%s FETCH FIRST $3 ROWS WITH TIES",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
												RelationGetRelationName(relation)),
					 column, column, column);

	options.params = makeParamList(lengthof(values));
	for (size_t i = 0; i < lengthof(values); i++)
	{
		options.params->params[i].value = Int64GetDatum(values[i]);
		options.params->params[i].isnull = false;
		options.params->params[i].pflags = PARAM_FLAG_CONST;
		options.params->params[i].ptype = INT8OID;
	}
	options.dest = CreateTuplestoreDestReceiver();
	SetTuplestoreDestReceiverParams(options.dest, result->setResult,
									result->econtext->ecxt_per_query_memory, false,
									result->setDesc,
									"the table's columns have changed");

	/* not read-only, so that it takes a snapshot of its own, now */
	SPI_connect();
	spi_result = SPI_execute_extended(query, &options);
	if (spi_result != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_extended failed: %s",
			 SPI_result_code_string(spi_result));
	SPI_finish();

	options.dest->rDestroy(options.dest);
	relation_close(relation, NoLock);
	return (Datum) 0;
}
