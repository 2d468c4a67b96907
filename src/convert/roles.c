/*-------------------------------------------------------------------------
 *
 * roles.c
 *	  The rights with which a conversion runs its statements.
 *
 * A table's owner decides what runs when the table is read or altered: check
 * constraints, expressions of indexes, casts.  A superuser who converts a key
 * reaches tables of any role that may reference it.  So each statement about a
 * table runs with the rights of its owner, which it cannot escape: as PostgreSQL
 * does it for REINDEX and others, without SET ROLE, without
 * a trigger that is deferred until the caller's commit, with a search_path that
 * is safe, and with settings that end with the statement.
 *
 * The owner gains nothing: that role could run the statement itself.  The
 * caller gains nothing either: it has the owner's rights, which was checked.
 *
 * A foreign key between tables of two owners is the one place where a statement
 * of one owner would plan a query over the table of another.  PostgreSQL checks
 * a new one by a join of both tables, with the rights of the role that
 * declares it, if these suffice to read both.  Planning runs code: the planner
 * computes constants in the expressions of indexes, their predicates,
 * statistics and checks of each table, including functions that are declared
 * immutable.  Otherwise PostgreSQL looks up each row of the referencing table in
 * the referenced one, as at an INSERT: the rows are read without a plan, and the
 * query of the look-up is about the referenced table alone, with the rights of
 * its owner.  So while a statement of a conversion runs, no role's rights suffice
 * to read tables of two owners for this check, and each owner's expressions are
 * planned with that owner's rights only.  The look-up could still run a cast of
 * a type that the other side owns: facts.c refuses that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "convert/convert.h"

/* Of a statement of a conversion that is running */
static bool keeps_owners_apart = false;

static ExecutorCheckPerms_hook_type next_check_perms = NULL;

/*
 * May a query read these tables?  Only the check of a foreign key asks without
 * raising an error; false has it done row by row.
 */
static bool
check_perms(CHECK_PERMS_PARAMETERS)
{
	if (keeps_owners_apart && !raises)
	{
		Oid			owner = InvalidOid;
		ListCell   *lc;

		foreach(lc, tables)
		{
			RangeTblEntry *table = lfirst_node(RangeTblEntry, lc);
			Oid			other = table->rtekind != RTE_RELATION ? InvalidOid :
			snowflake_convert_table_owner(table->relid);

			if (!OidIsValid(other))
				continue;
			if (OidIsValid(owner) && other != owner)
				return false;
			owner = other;
		}
	}
	return next_check_perms == NULL || next_check_perms(CHECK_PERMS_ARGUMENTS);
}

/*
 * Go on with the rights of a role, until snowflake_convert_return().  Further
 * flags are those of SetUserIdAndSecContext().  After an error, the end of the
 * subtransaction is the way back.
 */
void
snowflake_convert_become(Oid role, int flags, SavedRole *saved)
{
	GetUserIdAndSecContext(&saved->role, &saved->context);
	SetUserIdAndSecContext(role, saved->context | SECURITY_RESTRICTED_OPERATION | flags);
	saved->nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

void
snowflake_convert_return(const SavedRole *saved)
{
	AtEOXact_GUC(false, saved->nest_level);
	SetUserIdAndSecContext(saved->role, saved->context);
}

/*
 * Run a statement with the rights of a role, see above.  The check of a foreign
 * key must see all rows, whatever policies say.  Returns what SPI_execute() does.
 */
int
snowflake_convert_run(Oid role, const char *command)
{
	static bool is_hooked = false;
	bool		before = keeps_owners_apart;
	SavedRole	saved;
	volatile int result = 0;

	if (!is_hooked)
	{
		next_check_perms = ExecutorCheckPerms_hook;
		ExecutorCheckPerms_hook = check_perms;
		is_hooked = true;
	}
	snowflake_convert_become(role, SECURITY_NOFORCE_RLS, &saved);
	keeps_owners_apart = true;
	PG_TRY();
	{
		result = SPI_execute(command, false, 0);
	}
	PG_FINALLY();
	{
		keeps_owners_apart = before;
	}
	PG_END_TRY();
	snowflake_convert_return(&saved);
	return result;
}
