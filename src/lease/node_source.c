/*-------------------------------------------------------------------------
 *
 * node_source.c
 *	  Where the node ID comes from: the setting, the host's name or address, or a
 *	  lease.
 *
 * A node ID from the host's name or address is determined when the server starts,
 * and does not change until the server stops or a reload changes the setting.  Hosts
 * that lose their own addresses while they mint may be left with the same one, such
 * as that of a container engine's bridge, and would mint with one node ID.
 *
 * The postmaster reads the host when it loads the library, before there is any other
 * process.  If that gives no node ID, the keeper reads again until it does: an address may
 * arrive later, and nothing was minted meanwhile.  The keeper also reads after a reload that
 * changes the setting.  A standby has no keeper: until the promotion, the status reads the
 * host each time.
 *
 * The result is in a page of memory that all processes inherit from the postmaster: the
 * server's shared memory is re-created after the crash of a process, which is no reason to
 * read again.  It has one writer at a time: the postmaster before it starts others, then the
 * keeper.  While it is being written, "changes" is odd.  If it stays odd, the keeper has died
 * before it used what it wrote, and the next one reads again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <sys/mman.h>

#include "port/atomics.h"

#include "base/compat.h"
#include "base/settings.h"
#include "generator/words.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

/* One reading of the host's name or addresses. */
typedef struct HostReading
{
	char		setting[64];	/* snowflake.node_source, which asked for it */
	int32		number;			/* -1: none */
	char		text[1024];		/* what the number was taken from, or, in a
								 * sentence, why there is none */
} HostReading;

/* The last reading that gave a node ID, and how often it was changed. */
typedef struct Determined
{
	volatile uint32 changes;
	HostReading reading;
} Determined;

static Determined *determined = NULL;

/* Returns the source of the node ID for the status, without a URL. */
const char *
snowflake_node_source_name(void)
{
	switch (snowflake_node_source)
	{
		case NODE_FROM_SETTING:
			return "setting";
		case NODE_FROM_HOSTNAME:
			return "hostname";
		case NODE_FROM_ADDRESS:
			return "address";
		case NODE_FROM_LEASE:
			return snowflake_node_settings_coordinator(snowflake_node_source_text);
	}
	return NULL;
}

/* Does the node ID come from the host's name or address? */
bool
snowflake_node_source_is_host(void)
{
	return snowflake_node_source == NODE_FROM_HOSTNAME ||
		snowflake_node_source == NODE_FROM_ADDRESS;
}

/* Read the host's name or addresses, as the setting says. */
static HostReading
read_host(void)
{
	const char *colon = strchr(snowflake_node_source_text, ':');
	HostReading reading = {0};

	strlcpy(reading.setting, snowflake_node_source_text, sizeof(reading.setting));
	reading.number = snowflake_node_source == NODE_FROM_HOSTNAME ?
		snowflake_host_number_of_name(reading.text, sizeof(reading.text)) :
		snowflake_host_number_of_addresses(colon == NULL ? NULL : colon + 1,
										   reading.text, sizeof(reading.text));
	return reading;
}

/* Was a node ID determined for the present setting? */
static bool
get_determined(HostReading *reading)
{
	uint32		changes = determined->changes;

	pg_read_barrier();
	*reading = determined->reading;
	pg_read_barrier();
	return changes % 2 == 0 && changes == determined->changes && reading->number >= 0 &&
		strcmp(reading->setting, snowflake_node_source_text) == 0;
}

/* Store a reading.  Only the one writer calls this. */
static void
set_determined(const HostReading *reading)
{
	determined->changes |= 1;
	pg_write_barrier();
	determined->reading = *reading;
	pg_write_barrier();
	determined->changes++;
}

/* Likewise: forget the reading, since there is none for the present setting. */
static void
forget_determined(void)
{
	static const HostReading none = {.number = -1};

	if (determined->reading.number >= 0)
		set_determined(&none);
}

/* The node ID of a reading, or -1. */
static int32
node_of(const HostReading *reading)
{
	if (snowflake_node_source == NODE_FROM_HOSTNAME && reading->number >= 0 && snowflake_node_id > 0)
		return (int32) Min((int64) reading->number + snowflake_node_id, INT_MAX);
	return reading->number;
}

/* For processes that do not determine it: the reading that was determined, or would be now. */
static HostReading
get_reading(void)
{
	HostReading reading;

	return get_determined(&reading) ? reading : read_host();
}

/* For the process that determines it, likewise.  If it gives no node ID, log each new reason. */
static HostReading
determine(void)
{
	static char reported[sizeof(((HostReading *) NULL)->text)] = "";
	HostReading reading;

	if (get_determined(&reading))
		return reading;
	reading = read_host();
	if (node_of(&reading) >= 0 && node_of(&reading) <= snowflake_server_layout.max_node)
	{
		set_determined(&reading);
		return reading;
	}

	forget_determined();
	if (reading.number < 0 && strcmp(reported, reading.text) != 0)
	{
		const SnowflakeWords *words =
		&snowflake_words[snowflake_node_source == NODE_FROM_HOSTNAME ?
						 STATE_HOST_WITHOUT_NUMBER : STATE_HOST_WITHOUT_ADDRESS];

		strlcpy(reported, reading.text, sizeof(reported));
		ereport(LOG,
				errmsg_internal("%s", words->message),
				errdetail_internal("%s", reading.text),
				errhint("%s", words->hint));
	}
	return reading;
}

/*
 * Determine the node ID, if it comes from the host.  Only the postmaster calls this,
 * while it loads the library.
 */
void
snowflake_node_source_init(void)
{
	void	   *page = mmap(NULL, sizeof(Determined), PROT_READ | PROT_WRITE,
							MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		ereport(ERROR,
				errcode(ERRCODE_OUT_OF_MEMORY),
				errmsg("could not map anonymous shared memory: %m"));
	determined = page;
	determined->reading.number = -1;
	if (snowflake_node_source_is_host())
		(void) determine();
}

static void
set_wanted(SnowflakeNode *wanted, bool determines)
{
	int32		node = snowflake_node_id;

	if (snowflake_node_source_is_host())
	{
		HostReading reading = determines ? determine() : get_reading();

		node = node_of(&reading);
	}
	else if (determines)
		forget_determined();
	if (snowflake_node_source == NODE_FROM_LEASE)
		snowflake_lease_state_wanted(wanted);
	else
	{
		memset(wanted, 0, sizeof(*wanted));
		wanted->node = node;
		wanted->end = PG_UINT64_MAX;
		wanted->obstacle = node < 0 ? GATE_NODE_UNSET :
			node > snowflake_server_layout.max_node ? GATE_NODE_TOO_LARGE : GATE_OPEN;
	}
}

/*
 * Sets *wanted to the node ID to mint with, or to the obstacle.  Only the keeper calls this,
 * which determines the node ID if that has not been done yet.
 */
void
snowflake_node_source_determine(SnowflakeNode *wanted)
{
	set_wanted(wanted, true);
}

/* The same, as far as another process can tell. */
void
snowflake_node_source_wanted(SnowflakeNode *wanted)
{
	set_wanted(wanted, false);
}

/* Returns what the node ID was taken from, or why there is none, for the log and the status. */
char *
snowflake_node_source_origin(void)
{
	HostReading reading;

	switch (snowflake_node_source)
	{
		case NODE_FROM_SETTING:
			return psprintf("snowflake.node_id, which is set %s",
							snowflake_settings_origin("snowflake.node_id"));
		case NODE_FROM_HOSTNAME:
		case NODE_FROM_ADDRESS:
			reading = get_reading();
			return node_of(&reading) == reading.number ? pstrdup(reading.text) :
				psprintf("%s, plus snowflake.node_id %d", reading.text, snowflake_node_id);
		case NODE_FROM_LEASE:
			return psprintf("a lease from %s", snowflake_node_source_name());
	}
	return NULL;
}

/* Returns the settings to change for another node ID, for hints. */
const char *
snowflake_node_source_settings(void)
{
	return snowflake_node_source == NODE_FROM_SETTING ? "snowflake.node_id" :
		"snowflake.node_source to setting and snowflake.node_id";
}
