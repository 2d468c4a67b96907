/*-------------------------------------------------------------------------
 *
 * reservation_home.c
 *	  The database in which the reservation is kept.
 *
 * The table itself does not show whether snowflake.database was changed, or whether the table
 * was dropped and the server crashed before the keeper could write it again.  So a note of the
 * database is kept where no database can lose it: in the shared catalog of settings, as an ALTER
 * ROLE ALL SET of a setting that only superusers can change.  doc/design.md says what carries it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_database.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "base/settings.h"
#include "keeper/keeper.h"

/* The setting that is the note. */
#define SETTING		"snowflake.kept_in"

/*
 * Returns the database in which this cluster's reservation was last seen, or InvalidOid.  This
 * reads the catalog, since a session keeps the value that the setting had when it began: on a
 * standby another note may have arrived since then.  Call it in a transaction.
 */
Oid
snowflake_reservation_home_database(void)
{
	Relation	relation = table_open(DbRoleSettingRelationId, AccessShareLock);
	Oid			database = InvalidOid;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(InvalidOid));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(InvalidOid));
	scan = systable_beginscan(relation, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		settings = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
											RelationGetDescr(relation), &isnull);
		Datum	   *elements = NULL;
		int			count = 0;

		if (!isnull)
			deconstruct_array(DatumGetArrayTypeP(settings), TEXTOID, -1, false, TYPALIGN_INT,
							  &elements, NULL, &count);
		for (int i = 0; i < count; i++)
		{
			const char *setting = TextDatumGetCString(elements[i]);

			if (strncmp(setting, SETTING "=", strlen(SETTING "=")) == 0)
				database = (Oid) strtoul(setting + strlen(SETTING "="), NULL, 10);
		}
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return database;
}

/*
 * Note that it is this database, unless that is noted already.  The note is part of the
 * keeper's transaction.
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
	set->name = pstrdup(SETTING);
	set->args = list_make1(value);

	/*
	 * AlterSetting() checks the role, and the database may have set another
	 * one for us
	 */
	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   save_context | SECURITY_LOCAL_USERID_CHANGE);
	AlterSetting(InvalidOid, InvalidOid, set);
	SetUserIdAndSecContext(save_user, save_context);
	CommandCounterIncrement();
}

/*
 * Is the database a template?  New databases would have copies of the reservation, and pg_upgrade
 * does not carry the contents of template0.  Call this in a transaction.
 */
bool
snowflake_reservation_home_is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		result = HeapTupleIsValid(tuple) &&
	((Form_pg_database) GETSTRUCT(tuple))->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}
