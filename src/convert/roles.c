/*-------------------------------------------------------------------------
 *
 * roles.c
 *	  With whose rights a conversion does what it does.
 *
 * A table's owner decides what runs when the table is read or altered: check
 * constraints, expressions of indexes, casts.  A superuser who converts a key
 * reaches tables of anybody who may reference it, so whatever is done with a
 * table is done with the rights of its owner, and from where these cannot be
 * left: as PostgreSQL does it for REINDEX and others, without SET ROLE, without
 * a trigger that is put off until the caller's commit, with a search_path that
 * is safe, and with settings that end with the statement.
 *
 * The owner gets no more than he has: he could run the statement himself.  The
 * caller gets no more either: he has the owner's rights, which was checked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "convert/convert.h"

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
