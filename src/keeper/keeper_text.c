/*-------------------------------------------------------------------------
 *
 * keeper_text.c
 *	  What is wrong with the keeper, in words.
 *
 * Any backend may ask.  What the keeper is doing is read without a lock, so the words
 * may be about a moment ago.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/duration.h"
#include "generator/keeper_state.h"
#include "keeper/keeper_text.h"

/*
 * What keeps the keeper from its work, a sentence for the detail of an error; and what to
 * do about that, another, for its hint.
 */
const char *
snowflake_keeper_text_trouble(const char **todo)
{
	int			failure = snowflake_keeper_state_failure();
	int			pid = snowflake_keeper_state_pid();
	int64		standby_wait_usec = snowflake_keeper_state_standby_wait_usec();
	int64		usec = snowflake_keeper_state_unanswered_usec();

	if (standby_wait_usec != 0)
	{
		*todo = "Start a synchronous standby, or change synchronous_standby_names.";
		return psprintf("The commit of the reservation has been waiting for a synchronous standby for %s.",
						snowflake_duration(standby_wait_usec));
	}
	if (failure != 0)
	{
		*todo = "See the server log.";
		return psprintf("The keeper's last attempt failed with SQLSTATE %s.",
						unpack_sql_state(failure));
	}
	if (pid == 0)
	{
		*todo = "See the server log.";
		return "The keeper is not running.";
	}
	*todo = "See what the keeper waits for in pg_stat_activity, and whether its process was stopped.";
	return psprintf("The keeper, process %d, has not answered for %s.", pid, snowflake_duration(usec));
}

/*
 * What is wrong with the keeper and what to do about it, in sentences; or NULL, unless mints
 * have to wait for it, which the caller says: then what may be over in a moment is worth a
 * word as well.
 */
const char *
snowflake_keeper_text_advice(bool mints_wait)
{
	int			pid = snowflake_keeper_state_pid();
	const char *todo;
	const char *trouble = snowflake_keeper_text_trouble(&todo);

	if (snowflake_keeper_state_standby_wait_usec() != 0 ||
		snowflake_keeper_state_failure() != 0 ||
		(pid == 0 ? snowflake_keeper_state_is_missing() :
		 snowflake_keeper_state_held_usec() != 0))
		return psprintf("%s %s", trouble, todo);
	if (!mints_wait)
		return NULL;
	return pid == 0 ? "Wait: the server is starting the keeper." :
		psprintf("Wait: the keeper, process %d, has not answered for %s.", pid,
				 snowflake_duration(snowflake_keeper_state_unanswered_usec()));
}
