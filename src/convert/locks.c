/*-------------------------------------------------------------------------
 *
 * locks.c
 *	  The locks of a conversion.
 *
 * ACCESS EXCLUSIVE on every table that a statement will alter or whose foreign
 * key it will make anew, before anything is altered.  The facts are read
 * without locks first, to know what to lock, and again with them; what turns
 * up only then is locked as well, until nothing new does.  Trees of tables are
 * locked in the order of their topmost tables' OIDs, parents before children,
 * so two conversions cannot block each other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "storage/lmgr.h"

#include "convert/convert.h"
#include "convert/query.h"

/*
 * The tables at both ends of the foreign keys that the columns are part of.
 * Those of partitions come with their parents'.
 */
static const char *foreign_keys_query =
"WITH changing AS (SELECT relid, attnum FROM ROWS FROM (unnest($1), unnest($2)) AS c (relid, attnum)) "
"SELECT e.relid FROM changing c JOIN pg_constraint f"
"	ON f.conrelid = c.relid AND c.attnum = ANY (f.conkey),"
"	LATERAL (VALUES (f.conrelid), (f.confrelid)) AS e (relid) "
"WHERE f.contype = 'f' AND f.conparentid = 0 "
"UNION "
"SELECT e.relid FROM changing c JOIN pg_constraint f"
"	ON f.confrelid = c.relid AND c.attnum = ANY (f.confkey),"
"	LATERAL (VALUES (f.conrelid), (f.confrelid)) AS e (relid) "
"WHERE f.contype = 'f' AND f.conparentid = 0 "
"ORDER BY 1";

static bool
lock(Conversion *conv, Oid relid)
{
	if (list_member_oid(conv->locked, relid))
		return false;
	LockRelationOid(relid, conv->dry_run ? AccessShareLock : AccessExclusiveLock);
	conv->locked = lappend_oid(conv->locked, relid);
	return true;
}

/*
 * Lock what will be altered, and tables whose foreign keys will be made anew
 * by that.  Returns whether anything was not locked before.
 */
bool
snowflake_convert_lock(Conversion *conv)
{
	LOCKMODE	mode = conv->dry_run ? AccessShareLock : AccessExclusiveLock;
	List	   *tops = NIL;
	bool		locked_any = false;
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (snowflake_convert_alters(conv, column))
			tops = list_append_unique_oid(tops, column->relid);
	}
	snowflake_convert_query_columns(conv, foreign_keys_query, false);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		Oid			relid = snowflake_convert_oid(row, "relid");
		bool		below = false;

		/* what is altered is locked with the table where it is */
		foreach(lc, conv->columns)
		{
			KeyColumn  *column = lfirst(lc);

			if (column->relid == relid && OidIsValid(column->top))
				below = true;
		}
		if (!below)
			tops = list_append_unique_oid(tops, relid);
	}
	list_sort(tops, list_oid_cmp);

	foreach(lc, tops)
	{
		Oid			top = lfirst_oid(lc);
		ListCell   *child;

		locked_any |= lock(conv, top);
		foreach(child, find_all_inheritors(top, mode, NULL))
			locked_any |= lock(conv, lfirst_oid(child));
	}
	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		if (OidIsValid(sequence->identity_of) || snowflake_convert_drops(sequence))
			locked_any |= lock(conv, sequence->relid);
	}
	return locked_any;
}
