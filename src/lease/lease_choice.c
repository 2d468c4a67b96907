/*-------------------------------------------------------------------------
 *
 * lease_choice.c
 *	  Which node ID a server takes.
 *
 * Any choice is safe, because in lease.c a grant starts above all earlier grants
 * of its node ID.  A good choice keeps the node ID that the server had, and leaves those
 * of others alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "nodes/pg_list.h"

#include "base/compat.h"
#include "lease/lease.h"
#include "lease/node_settings.h"

/* Servers that choose at the same time spread over at most 2 to this power choices */
#define MOST_DOUBLINGS	10

/*
 * Returns the smallest node ID that may be leased and is not one of these, after
 * skipping "skip" of them, beginning again where there are fewer; -1 if there is none.
 */
static int32
smallest_other(List *nodes, int skip)
{
	int32		candidate = snowflake_node_settings_next_lease(0);
	int			others = 0;
	ListCell   *cell;

	list_sort(nodes, list_int_cmp);
	cell = list_head(nodes);
	for (; candidate >= 0; candidate = snowflake_node_settings_next_lease(candidate + 1))
	{
		while (cell != NULL && lfirst_int(cell) < candidate)
			cell = lnext(nodes, cell);
		if (cell != NULL && lfirst_int(cell) == candidate)
			continue;
		if (others++ == skip)
			return candidate;
	}
	return others == 0 ? -1 : smallest_other(nodes, skip % others);
}

/* Log the first damaged record, unless it was logged before; -1: there is none. */
static void
report_damaged(int32 node)
{
	static int32 reported = -1;

	if (node == reported)
		return;
	reported = node;
	if (node < 0)
		return;
	ereport(WARNING,
			errmsg("the record of snowflake node ID %d at its coordinator is damaged", node),
			errdetail("The node ID cannot be leased. There may be more damaged records: snowflake_fleet() lists them."),
			errhint("Use snowflake_fleet_recover() to replace it."));
}

/* A lease that has ended. */
typedef struct Ended
{
	const SnowflakeRecord *record;
	int32		node;
	int64		granted;
	int64		until;
	bool		is_own;
} Ended;

/*
 * Which of two ended leases is the better choice?  One of our own is, the one that was granted
 * last.  Among those of others, it is the one that ended first: to a server whose clock is
 * ahead, leases that are still used seem to have ended.
 */
static int
compare_ended(const ListCell *a, const ListCell *b)
{
	const Ended *left = lfirst(a);
	const Ended *right = lfirst(b);

	if (left->is_own != right->is_own)
		return left->is_own ? -1 : 1;
	if (left->is_own)
		return left->granted > right->granted ? -1 : left->granted < right->granted;
	return left->until < right->until ? -1 : left->until > right->until;
}

/*
 * Returns the node ID to take, or -1 if there is none: the one that last had
 * this server's name, or any other one, if its lease has ended by our clock;
 * otherwise one without a record.  Sets *record to its record, or NULL, and *parsed.
 *
 * A lease of our own counts as ended if it does not go beyond "own_tick", the
 * generator's tick: otherwise a server that is ahead of the clock, and is stopped
 * cleanly, would take another node ID at each start.
 *
 * Servers that choose at the same time choose the same, and all but one are late.  The more
 * often this server was ("races"; once does not count), the more servers there are, and the
 * more of the best choices it may skip.
 */
int32
snowflake_lease_choice_make(List *records, int64 now_tick, int64 own_tick, int races,
							const SnowflakeRecord **record, SnowflakeLeaseRecord *parsed)
{
	char		name[SNOWFLAKE_HOLDER_SIZE];
	List	   *known = NIL;
	uint64		spread = UINT64CONST(1) << Min(Max(races - 1, 0), MOST_DOUBLINGS);
	int			skip = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, spread - 1);
	List	   *choices = NIL;
	int32		damaged = -1;
	ListCell   *cell;

	snowflake_lease_record_own_name(name);
	foreach(cell, records)
	{
		const SnowflakeRecord *each = lfirst(cell);
		int32		node = snowflake_lease_record_node(each->key);
		SnowflakeLeaseRecord found;

		if (node < 0)
			continue;
		known = lappend_int(known, node);
		if (snowflake_node_settings_next_lease(node) != node)
			continue;
		if (!snowflake_lease_record_parse(each->value, &found))
			damaged = damaged < 0 ? node : damaged;
		else if (found.until < now_tick ||
				 (found.until <= own_tick && strcmp(found.holder, name) == 0))
		{
			Ended	   *ended = palloc(sizeof(Ended));

			ended->record = each;
			ended->node = node;
			ended->granted = found.granted;
			ended->until = found.until;
			ended->is_own = strcmp(found.holder, name) == 0;
			choices = lappend(choices, ended);
		}
	}
	report_damaged(damaged);
	if (choices != NIL)
	{
		const Ended *chosen;

		list_sort(choices, compare_ended);
		chosen = linitial(choices);
		if (!chosen->is_own)
			chosen = list_nth(choices, skip % list_length(choices));
		*record = chosen->record;
		(void) snowflake_lease_record_parse(chosen->record->value, parsed);
		return chosen->node;
	}
	*record = NULL;
	return smallest_other(known, skip);
}
