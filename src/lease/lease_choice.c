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

#include "base/compat.h"
#include "lease/lease_choice.h"
#include "lease/node_settings.h"

static int
compare_nodes(const void *a, const void *b)
{
	int32		left = *(const int32 *) a;
	int32		right = *(const int32 *) b;

	return left < right ? -1 : left > right;
}

/* The smallest node ID that may be leased and is not one of these, or -1. */
static int32
smallest_other(int32 *nodes, int count)
{
	int32		candidate = snowflake_node_settings_next_lease(0);

	qsort(nodes, count, sizeof(*nodes), compare_nodes);
	for (int i = 0; i < count && candidate >= 0; i++)
		if (nodes[i] == candidate)
			candidate = snowflake_node_settings_next_lease(candidate + 1);
	return candidate;
}

/* Tell of the first damaged record, unless it was told of before; -1: there is none. */
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

/*
 * Which of two leases that have ended is the better choice?  One of our own is, and of
 * several the one that was granted last: its node ID is the one that this server had.
 * Of those of others the one that ended first: to a server whose clock is ahead, leases
 * that are still used seem to have ended.
 */
static bool
is_better(const SnowflakeLeaseRecord *record, bool is_own,
		  const SnowflakeLeaseRecord *other, bool other_is_own)
{
	if (is_own != other_is_own)
		return is_own;
	return is_own ? record->granted > other->granted : record->until < other->until;
}

/*
 * Which node ID to take.  The one that last had this server's name, or any
 * other, if its lease has ended by our clock; otherwise one without a record.
 * *record is its record, or NULL.  -1 if there is none.
 */
int32
snowflake_lease_choice_make(List *records, int64 now_tick, const SnowflakeRecord **record,
							SnowflakeLeaseRecord *parsed)
{
	char		name[SNOWFLAKE_HOLDER_SIZE];
	int32	   *known = palloc(sizeof(int32) * (list_length(records) + 1));
	int			nknown = 0;
	bool		chosen_is_own = false;
	int32		chosen = -1;
	int32		damaged = -1;
	ListCell   *cell;

	snowflake_lease_record_own_name(name);
	foreach(cell, records)
	{
		const SnowflakeRecord *each = lfirst(cell);
		int32		node = snowflake_lease_record_node(each->key);
		SnowflakeLeaseRecord found;
		bool		is_own;

		if (node < 0)
			continue;
		known[nknown++] = node;
		if (snowflake_node_settings_next_lease(node) != node)
			continue;
		if (!snowflake_lease_record_parse(each->value, &found))
		{
			damaged = damaged < 0 ? node : damaged;
			continue;
		}
		is_own = strcmp(found.holder, name) == 0;
		if (found.until >= now_tick ||
			(chosen >= 0 && !is_better(&found, is_own, parsed, chosen_is_own)))
			continue;
		chosen = node;
		chosen_is_own = is_own;
		*record = each;
		*parsed = found;
	}
	report_damaged(damaged);
	if (chosen >= 0)
		return chosen;
	*record = NULL;
	return smallest_other(known, nknown);
}
