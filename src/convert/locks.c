/*-------------------------------------------------------------------------
 *
 * locks.c
 *	  The locks of a conversion.
 *
 * ACCESS EXCLUSIVE on every table that a statement will alter or whose foreign
 * key it will re-create, before anything is altered.  The facts are read
 * without locks first, to know what to lock, and again with them; tables that turn
 * up only then are locked as well, until no new ones do.  Trees of tables are
 * locked in the order of their topmost tables' OIDs, parents before children.
 *
 * No order would keep two conversions from blocking each other: a conversion
 * knows which tables to lock only when it has locks.  So for each owner of tables
 * one conversion runs at a time in a database: it holds a lock of that owner until
 * the end of the transaction, taken before those of the tables, in the order of the
 * owners' OIDs.  A conversion takes it for the owners whose rights its caller has,
 * so no role can hold up conversions of tables that it may not lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"

#include "convert/convert.h"

static bool
lock(Conversion *conv, Oid relid)
{
	if (list_member_oid(conv->locked, relid))
		return false;
	LockRelationOid(relid, conv->dry_run ? AccessShareLock : AccessExclusiveLock);
	conv->locked = lappend_oid(conv->locked, relid);
	return true;
}

/* What is altered is locked with the table where it is. */
static List *
add_top(Conversion *conv, List *tops, Oid relid)
{
	ListCell   *lc;

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (column->relid == relid && OidIsValid(column->top))
			return tops;
	}
	return list_append_unique_oid(tops, relid);
}

/* One conversion at a time for each owner of these tables; none is locked twice. */
static void
lock_owners(Conversion *conv, List *tops)
{
	List	   *owners = NIL;
	ListCell   *lc;

	foreach(lc, tops)
	{
		Oid			owner = snowflake_convert_table_owner(lfirst_oid(lc));

		if (OidIsValid(owner) && has_privs_of_role(GetUserId(), owner))
			owners = list_append_unique_oid(owners, owner);
	}
	list_sort(owners, list_oid_cmp);
	foreach(lc, owners)
	{
		if (list_member_oid(conv->locked_owners, lfirst_oid(lc)))
			continue;
		LockDatabaseObject(AuthIdRelationId, lfirst_oid(lc), 0, ShareUpdateExclusiveLock);
		conv->locked_owners = lappend_oid(conv->locked_owners, lfirst_oid(lc));
	}
}

/*
 * Lock what will be altered, and tables whose foreign keys will be re-created
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
	foreach(lc, conv->references)
	{
		KeyReference *reference = lfirst(lc);

		tops = add_top(conv, tops, reference->relid);
		tops = add_top(conv, tops, reference->referenced);
	}
	list_sort(tops, list_oid_cmp);

	if (!conv->dry_run)
		lock_owners(conv, tops);

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
