/*-------------------------------------------------------------------------
 *
 * words.c
 *	  The words for each state that is reported: a table with a row for each,
 *	  for errors, the status and the log.
 *
 * Advice is a hint, so a hint must be understandable without its error.  A row without a message is
 * not an error of its own: its hint is part of another one, or advice while minting goes on.
 *
 * A new state needs a row here, a name in words.h, and in refusal.c a condition and the values that
 * it names.  test/words.pl --write writes this table into doc/messages.md, and a test compares them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "base/compat.h"
#include "generator/words.h"

const SnowflakeWords snowflake_words[SNOWFLAKE_STATES] = {

	/* The keeper */
	[STATE_UNPRELOADED] = {
		.message = "{function} needs the library \"snowflake\" to be preloaded",
		.hint = "Add \"snowflake\" to the libraries in shared_preload_libraries, and restart the server."
	},
	[STATE_KEEPERLESS] = {
		.message = "the snowflake generator has no keeper",
		.detail = "It does not run in single-user mode or during pg_upgrade.",
		.hint = "Start the server as usual."
	},
	[STATE_WORKERLESS] = {
		.message = "the snowflake keeper has no background worker",
		.detail = "The setting max_worker_processes is {max_workers}, and other libraries may also use background workers.",
		.hint = "Increase max_worker_processes, and restart the server."
	},
	[STATE_DATABASE_MISSING] = {
		.message = "the database of the snowflake reservation does not exist",
		.detail = "The setting snowflake.database is \"{database}\".",
		.hint = "Create the database \"{database}\", or change snowflake.database and restart the server."
	},
	[STATE_DATABASE_TEMPLATE] = {
		.message = "the database of the snowflake reservation is a template",
		.detail = "The setting snowflake.database is \"{database}\".",
		.hint = "Change snowflake.database to a database that is not a template, and restart the server."
	},
	[STATE_NOT_READY] = {
		.message = "the snowflake generator was not ready within {keeper_wait} ms",
		.detail = "The gate is {gate}.",
		.hint = "{keeper}"
	},
	[STATE_UNRESERVED] = {
		.message = "the snowflake reservation was not extended within {keeper_wait} ms",
		.detail = "It ends at \"{reserved_until}\".",
		.hint = "{keeper}"
	},
	[STATE_UNJUDGED] = {
		.message = "the snowflake keeper did not check the clock within {keeper_wait} ms",
		.detail = "The snowflake generator is {lead} ahead of the clock.",
		.hint = "{keeper}"
	},
	[STATE_STANDBY_AWAITED] = {.hint = "The commit of the reservation has been waiting for a synchronous standby for {standby_wait}. Start a synchronous standby, or change synchronous_standby_names."},
	[STATE_LANGUAGE_MISSING] = {.hint = "The keeper's extension needs the extension plpgsql: create that in the database \"{database}\"."},
	[STATE_KEEPER_FAILED] = {.hint = "The keeper's last attempt failed with SQLSTATE {failure}. See the server log."},
	[STATE_KEEPER_MISSING] = {.hint = "The keeper is not running. See the server log."},
	[STATE_KEEPER_STARTS] = {.hint = "Wait: the server is starting the keeper."},
	[STATE_KEEPER_HELD] = {.hint = "The keeper, process {keeper_pid}, has not answered for {unanswered}. See what it waits for in pg_stat_activity, and whether the process was stopped."},
	[STATE_KEEPER_BUSY] = {.hint = "Wait: the keeper, process {keeper_pid}, has not answered for {unanswered}."},

	/* The reservation and the layout */
	[STATE_RESERVATION_LOST] = {
		.message = "the snowflake reservation of this server is not in the database \"{database}\"",
		.detail = "It was last seen in the database {home}.",
		.hint = "Restore the setting snowflake.database. If the reservation is lost, start a new one with snowflake_accept_database(), above the largest snowflake that exists."
	},
	[STATE_LAYOUT_CHANGED] = {
		.message = "snowflake.layout differs from the layout that this server has minted with",
		.detail = "The configured layout is \"{layout}\", the stored one \"{stored_layout}\".",
		.hint = "Restore snowflake.layout, or accept the change with snowflake_accept_layout(). Existing snowflakes will decode to other times unless only bits of time were added."
	},
	[STATE_LAYOUT_ENDED] = {
		.sqlstate = ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
		.message = "the snowflake layout has ended",
		.detail = "Its last tick started at \"{layout_end}\".",
		.hint = "The layout has ended: configure another snowflake.layout, with larger snowflakes."
	},
	[STATE_LAYOUT_ENDS_SOON] = {.hint = "Plan for another snowflake.layout, with larger snowflakes."},
	[STATE_STANDBY_UNFIT] = {.hint = "A promotion would leave this server unable to mint: {message}. {hint}"},

	/* The node ID */
	[STATE_NODE_UNSET] = {
		.message = "snowflake.node_id is not set",
		.detail = "The layout has node IDs from 0 to {max_node}; no two servers that mint may have the same.",
		.hint = "Set snowflake.node_id to a number that no other server mints with, in a file that is not copied with the data directory, and reload the configuration."
	},
	[STATE_HOST_WITHOUT_NUMBER] = {
		.message = "the host's name does not give a node ID",
		.detail = "{host}",
		.hint = "Give the host a name such as db-3, or set snowflake.node_source to another source, and reload the configuration."
	},
	[STATE_HOST_WITHOUT_ADDRESS] = {
		.message = "the host's addresses do not give a node ID",
		.detail = "{host}",
		.hint = "Name the interface whose address no other server has, as in snowflake.node_source = 'address:eth0', or set it to another source, and reload the configuration."
	},
	[STATE_NODE_TOO_LARGE] = {
		.message = "snowflake.node_id {node} is too large for the layout",
		.detail = "The layout has node IDs from 0 to {max_node}.",
		.hint = "Set snowflake.node_id to at most {max_node}, and reload the configuration."
	},
	[STATE_HOST_TOO_LARGE] = {
		.message = "node ID {node} is too large for the layout",
		.detail = "The layout has node IDs from 0 to {max_node}. The node ID comes from the host's {host_part}.",
		.hint = "Set snowflake.node_source to another source, or choose a layout with more node IDs."
	},
	[STATE_LEASE_NONE] = {
		.message = "this server has not leased a node ID",
		.hint = "{coordinator}"
	},
	[STATE_LEASE_ENDED] = {
		.message = "the lease of this server's node ID has ended",
		.detail = "Node ID {leased_node} was leased until \"{leased_until}\".",
		.hint = "{coordinator}"
	},
	[STATE_LEASE_REVOKED] = {
		.message = "this server's node ID may be leased again by another server",
		.detail = "Node ID {leased_node} was leased until \"{leased_until}\".",
		.hint = "{coordinator}"
	},
	[STATE_LEASE_LATE] = {.hint = "Minting ends with the lease. {coordinator}"},

	/* Reports of the coordinator, or that there are none */
	[STATE_COORDINATOR_UNUSABLE] = {.hint = "The coordinator has been unusable since \"{unusable_since}\": {coordinator_error}."},
	[STATE_FLEET_MISSING] = {
		.message = "the coordinator has no snowflake fleet",
		.hint = "The coordinator has no fleet: if it has lost its data, re-create it with snowflake_fleet_recover(); if there never was one, create it with snowflake_fleet_create()."
	},
	[STATE_FLEET_GONE] = {
		.message = "the coordinator has no snowflake fleet any more",
		.hint = "The coordinator has no fleet, but this server has had a lease: re-create it with snowflake_fleet_recover()."
	},
	[STATE_FLEET_OF_OTHER_LAYOUT] = {
		.message = "the layout of the snowflake fleet differs from that of this server",
		.hint = "The fleet has another layout, which snowflake_fleet() shows: set snowflake.layout to it, and restart the server."
	},
	[STATE_FLEET_WENT_BACK] = {
		.message = "the coordinator of the snowflake fleet went back in time, and grants nothing",
		.hint = "The coordinator went back in time: when it is sound again, use snowflake_fleet_recover()."
	},
	[STATE_FLEET_COPIED] = {
		.message = "the records of the snowflake fleet were copied from another coordinator",
		.hint = "The fleet's records were copied from another coordinator: if that one is permanently stopped, use snowflake_fleet_recover()."
	},
	[STATE_FLEET_REPLACED] = {
		.message = "the coordinator of the snowflake fleet was replaced, and the old one answers",
		.hint = "The coordinator that answers was replaced by another: stop it, or, if it is the right one, use snowflake_fleet_recover()."
	},
	[STATE_FLEET_NEW_TERM] = {
		.message = "the coordinator of the snowflake fleet failed over, and grants nothing new yet",
		.hint = "The coordinator failed over to another timeline, and may lack the latest leases: it grants new ones after half of snowflake.lease, when all servers have asked for theirs."
	},
	[STATE_FLEET_BELOW_FLOOR] = {
		.message = "the floor of the snowflake fleet is ahead of the clock of this server",
		.hint = "This server waits for the floor of the fleet, until \"{floor}\". If that is a mistake, use snowflake_fleet_recover() with a lower one."
	},
	[STATE_FLEET_FULL] = {
		.message = "the snowflake fleet has no free node ID",
		.hint = "No node ID is free: wait for the end of a lease, widen snowflake.lease_nodes, or choose a layout with more node IDs."
	},
	[STATE_FLEET_DAMAGED] = {
		.message = "the record of the snowflake fleet at its coordinator is damaged",
		.hint = "The record of the fleet is damaged: re-create it with snowflake_fleet_recover()."
	},
	[STATE_LESSEE_MISSING] = {.hint = "The lessee is not running: see the server log."},
	[STATE_LESSEE_SOUND] = {.hint = "The lessee, process {lessee_pid}, asks the coordinator, which has neither granted nor renewed a lease yet: wait."},
	[STATE_LESSEE_ASKS] = {.hint = "The lessee, process {lessee_pid}, has no answer from the coordinator yet: wait, or check whether the process was stopped."},
	[STATE_LESSEE_LATE] = {.hint = "The lessee, process {lessee_pid}, has not renewed the lease since \"{renewed_at}\": wait, or check whether the process was stopped."},

	/* The clock */
	[STATE_CLOCK_BEFORE_EPOCH] = {
		.message = "the clock is before the epoch of the snowflake layout",
		.detail = "The epoch is \"{epoch}\".",
		.hint = "Correct the server's clock, or, if it is correct, configure another snowflake.layout."
	},
	[STATE_CLOCK_PAST_END] = {
		.sqlstate = ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
		.message = "the snowflake layout has ended",
		.detail = "Its last tick started at \"{layout_end}\".",
		.hint = "Correct the server's clock, or, if it is correct, configure another snowflake.layout."
	},
	[STATE_CLOCK_UNRELEASED] = {
		.message = "the clock is before the release of this version of snowflake",
		.detail = "It is at \"{clock}\", and there is no snowflake to compare it with.",
		.hint = "Correct the server's clock."
	},
	[STATE_CLOCK_BEHIND] = {
		.message = "the snowflake generator is {clock_behind} ahead of the clock",
		.detail = "It may be ahead by {max_ahead} (snowflake.max_ahead). Minting starts when the clock has advanced by another {clock_wait}.",
		.hint = "Correct the server's clock. If it is correct now, and was ahead earlier, believe it with snowflake_accept_clock(). {ways}"
	},
	[STATE_CLOCK_DOUBTED] = {
		.message = "the clock is not believed",
		.detail = "It is {clock_past} past the newest snowflake. If it stays there, it is believed in {clock_wait}.",
		.hint = "Correct the server's clock, or, if it is correct, believe it with snowflake_accept_clock()."
	},
	[STATE_CLOCK_UNBELIEVED] = {
		.message = "the clock is not believed",
		.hint = "Correct the server's clock, or, if it is correct, believe it with snowflake_accept_clock()."
	},
	[STATE_CLOCK_UNPROVEN] = {.hint = "The clock was {clock_past} past the newest snowflake when the server started, and is believed: correct it, or accept it with snowflake_accept_clock()."},
	[STATE_JUMPED_OUT] = {.hint = "The clock went {jump}, to a time that the layout does not have: correct it."},
	[STATE_JUMPED_BACK] = {.hint = "The clock went {jump}, and is not believed: correct it. If it stays there, it is believed in {clock_wait}."},
	[STATE_JUMPED] = {.hint = "The clock went {jump}, and is not believed: correct it, or believe it with snowflake_accept_clock(). If it stays there, it is believed in {clock_wait}."},

	/* IDs ahead of the clock */
	[STATE_RESUMES] = {
		.message = "minting snowflakes resumes in {wait}, when the earlier reservation ends",
		.detail = "Snowflakes up to \"{last}\" may have been issued before. This call has waited {waited} of {max_wait} ms (snowflake.max_wait).",
		.hint = "Wait: minting resumes in {wait}, when the earlier reservation ends. If snowflake.max_wait is more than snowflake.reservation, mints wait instead of failing."
	},
	[STATE_AHEAD] = {
		.message = "the snowflake generator is {lead} ahead of the clock",
		.detail = "It may be ahead by {may_lead} ({may_lead_setting}). This call has waited {waited} of {max_wait} ms (snowflake.max_wait), and needs another {wait}.",
		.hint = "{todo}"
	},
	[STATE_ADVANCED] = {.hint = "The generator was advanced by snowflake_advance()."},
	[STATE_WENT_BACK] = {.hint = "The clock went back by {back}, {back_ago} ago."},
	[STATE_WENT_BACK_AGAIN] = {.hint = "The clock went back by {back}, {back_ago} ago; another {left} remain from a step back by {earlier_back}, {earlier_back_ago} ago."},
	[STATE_WENT_BACK_AHEAD] = {.hint = "The clock went back by {back}, {back_ago} ago; another {left} remain from before."},
	[STATE_STARTED] = {.hint = "The generator starts above what may have been issued before."},
	[STATE_LOWERED] = {.hint = "The clock went back, or snowflake.max_ahead or snowflake.max_lead was lowered."},
	[STATE_WAITS_FOR_JUMP] = {.hint = "{jumped} Minting goes on in {wait}."},
	[STATE_WAITS_LONG] = {.hint = "{why} Check the server's clock. If it is correct, minting goes on in {wait}. {ways}"},
	[STATE_WAYS] = {.hint = "To go on at once, in order and with the same node ID, set snowflake.max_ahead to at least {needed_ahead} s and reload the configuration. {at_clock}"},
	[STATE_WAY_AT_CLOCK] = {.hint = "To give up the order instead, set {node_settings} to a number that was never used and call snowflake_restart_at_clock() with it."},
	[STATE_WAY_AT_CLOCK_LEASED] = {.hint = "To give up the order instead, call snowflake_restart_at_clock({node}), which leases another node ID."},
	[STATE_WAITS_ADVANCED] = {.hint = "{why} Minting goes on in {wait}."},
	[STATE_WAITS] = {.hint = "{why} Check the server's clock. Minting goes on when it has advanced by another {wait}."},
	[STATE_STANDS_ADVANCED] = {.hint = "Snowflakes are {lead} ahead of the clock after snowflake_advance(). The clock will catch up in about that time. Minting goes on."},
	[STATE_STANDS] = {.hint = "Snowflakes are {lead} ahead of the clock, which will catch up in about that time. Minting goes on."},
};

/* Returns a text of the table with its values filled in, in the current memory context. */
char *
snowflake_words_fill(const char *text, SnowflakeWordsValue value, const void *about)
{
	StringInfoData filled;
	size_t		plain;

	initStringInfo(&filled);
	while (text[plain = strcspn(text, "{")] != '\0')
	{
		const char *word = text + plain + 1;
		size_t		length = strcspn(word, "}");

		appendBinaryStringInfo(&filled, text, (int) plain);
		appendStringInfoString(&filled, value(pnstrdup(word, length), about));
		text = word + length + 1;
	}
	appendStringInfoString(&filled, text);
	return filled.data;
}

/* Returns the SQLSTATE of a state's error. */
int
snowflake_words_sqlstate(SnowflakeState state)
{
	return snowflake_words[state].sqlstate != 0 ? snowflake_words[state].sqlstate :
		ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
}
