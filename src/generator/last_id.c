/*-------------------------------------------------------------------------
 *
 * last_id.c
 *	  The ID that this session minted last, as lastval() is for sequences.
 *
 * DISCARD SEQUENCES and DISCARD ALL forget it, as they do lastval(): connection
 * poolers send the latter before they hand a session to another client.  Core
 * has no hook for DISCARD, so the hook for utility commands watches for it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "base/compat.h"
#include "generator/last_id.h"

PG_FUNCTION_INFO_V1(snowflake_current);

int64		snowflake_last_id = -1;

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/* Run a utility command, and forget the ID if it was such a DISCARD. */
static void
forget_at_discard(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	/* before the command, which may free its own statement */
	bool		discards = IsA(pstmt->utilityStmt, DiscardStmt) &&
	(castNode(DiscardStmt, pstmt->utilityStmt)->target == DISCARD_ALL ||
	 castNode(DiscardStmt, pstmt->utilityStmt)->target == DISCARD_SEQUENCES);

	(prev_ProcessUtility ? prev_ProcessUtility : standard_ProcessUtility)
		(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (discards)
		snowflake_last_id = -1;
}

/* Only while the server preloads libraries: nothing else mints. */
void
snowflake_last_id_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = forget_at_discard;
}

/* As lastval(): what this session, not another or a parallel worker, minted. */
Datum
snowflake_current(PG_FUNCTION_ARGS)
{
	if (snowflake_last_id < 0)
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("snowflake_current() is not yet defined in this session"),
				errhint("Call snowflake_next() in this session first."));
	PG_RETURN_INT64(snowflake_last_id);
}
