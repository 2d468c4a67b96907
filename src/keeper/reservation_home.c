/*-------------------------------------------------------------------------
 *
 * reservation_home.c
 *	  The database in which the reservation is kept.
 *
 * The table cannot tell that it is not the right one: that snowflake.database was
 * changed, or that the table was dropped and the server crashed before the keeper
 * could write it again.  So a note of its database is kept where no
 * database can lose it, in the shared catalog of settings, as an ALTER ROLE ALL
 * SET of a setting that is for superusers only.
 *
 * Crash recovery, replication and backups carry it.  pg_dumpall does not, which
 * is as it should be for another server, and hence neither does pg_upgrade: after
 * that the next opening writes the note again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_db_role_setting.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "base/settings.h"
#include "keeper/reservation_home.h"

/* The database in which this cluster's reservation was last seen, or InvalidOid. */
Oid
snowflake_reservation_home_database(void)
{
	if (snowflake_kept_in == NULL)
		return InvalidOid;
	return (Oid) strtoul(snowflake_kept_in, NULL, 10);
}

/*
 * Note that it is this one, unless that is known.  For the keeper.  Part of the
 * transaction.
 */
void
snowflake_reservation_home_note(void)
{
	VariableSetStmt *set;
	A_Const    *value;
	char	   *database;
	Oid			save_user;
	int			save_context;

	if (snowflake_reservation_home_database() == MyDatabaseId)
		return;

	database = psprintf("%u", MyDatabaseId);
	value = makeNode(A_Const);
	value->val.sval.type = T_String;
	value->val.sval.sval = database;
	value->location = -1;
	set = makeNode(VariableSetStmt);
	set->kind = VAR_SET_VALUE;
	set->name = pstrdup("snowflake.kept_in");
	set->args = list_make1(value);

	/* who may set it is looked at, and the database may have a role for us */
	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   save_context | SECURITY_LOCAL_USERID_CHANGE);
	AlterSetting(InvalidOid, InvalidOid, set);
	SetUserIdAndSecContext(save_user, save_context);
	(void) set_config_option("snowflake.kept_in", database,
							 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SET,
							 true, 0, false);
	CommandCounterIncrement();
}
