/*-------------------------------------------------------------------------
 *
 * reserve.c
 *	  What the keeper does with the reservation and the gate: open, extend, store
 *	  the exact end, and reopen with smaller IDs.
 *
 * Each follows one order, on which generator.c depends: commit first, publish afterwards.  A
 * commit is durable, also on the synchronous standbys, except for that of an exact end, which
 * only ever lowers what is reserved.  The time is an argument: that of the corrected clock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "generator/counters.h"
#include "generator/generator.h"
#include "generator/keeper_state.h"
#include "keeper/keeper.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"

/* The time that mints may reach within so many ms: IDs may be ahead of the clock. */
static TimestampTz
reach(TimestampTz now, int64 ms)
{
	return now + (snowflake_max_lead_ms + ms) * INT64CONST(1000);
}

/* How far beyond IDs that are ahead of the clock to reserve, in microseconds: a crash adds that. */
static int64
ahead_usec(void)
{
	return Max(200 * 1000, snowflake_server_layout.tick_usec);
}

/* Do IDs run ahead of the clock, and may they?  Then the reservation has to be ahead of them. */
static bool
is_ahead(TimestampTz newest, TimestampTz now)
{
	int64		lead_usec = newest - now;

	return lead_usec > 0 && lead_usec <= snowflake_generator_may_lead_usec() +
		snowflake_generator_early_usec();
}

/*
 * How much of what is reserved mints may use, in ms: beyond max_jump, they could follow a clock
 * that jumped before the keeper has read it.
 */
static int
usable_ms(void)
{
	return Min(snowflake_reservation_ms, snowflake_max_jump_ms);
}

/*
 * The position up to which to reserve, or up to which mints may use what is reserved: that many
 * ms from the clock, and not below what was issued.  A generator that is ahead of the clock
 * reserves little more, or a series of crashes would take it further and further ahead.
 */
static uint64
up_to(uint64 last, TimestampTz now, int ms)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	TimestampTz newest = snowflake_generator_time(last);
	int64		tick = snowflake_layout_tick_at(layout, reach(now, ms));

	tick = Max(tick, snowflake_layout_position_tick(layout, last));
	if (is_ahead(newest, now))
		tick = Max(tick, snowflake_layout_tick_at(layout, newest + ahead_usec()));
	return snowflake_layout_last_position(layout, Min(tick, layout->max_tick));
}

static uint64
reserve_up_to(uint64 last, TimestampTz now)
{
	return up_to(last, now, snowflake_reservation_ms);
}

/* The position up to which mints may use a reservation. */
static uint64
usable(uint64 stored, uint64 last, TimestampTz now)
{
	return Min(stored, up_to(last, now, usable_ms()));
}

/* The position up to which to reserve, within a lease.  Tells the lessee where the generator is. */
static uint64
reserve_within(const SnowflakeNode *wanted, uint64 last, TimestampTz now)
{
	uint64		limit = reserve_up_to(last, now);

	snowflake_lease_state_need(last);
	return Min(limit, wanted->end);
}

/* How much must be left so that no mint asks for more, in microseconds: half of a reservation. */
static int64
request_margin(uint64 last, TimestampTz now)
{
	TimestampTz newest = snowflake_generator_time(last);

	return is_ahead(newest, reach(now, usable_ms() / 2)) ? ahead_usec() / 2 : usable_ms() * INT64CONST(500);
}

/* The position from which on a minter asks for more. */
static uint64
refill_from(uint64 limit, int64 half_usec, const SnowflakeNode *wanted)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		half = half_usec / layout->tick_usec;
	int64		tick = snowflake_layout_position_tick(layout, limit) - half;

	/* at the end of a lease, it is useless to ask earlier */
	if (limit == wanted->end)
		return limit;
	return snowflake_layout_first_position(layout, Max(tick, 0));
}

/* The last position of the tick in which a stored reservation ends; 0 if there is none. */
static uint64
end_of_reservation(TimestampTz until)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int64		tick = TIMESTAMP_IS_NOBEGIN(until) ? -1 : snowflake_layout_tick_at(layout, until);

	return tick < 0 ? 0 :
		snowflake_layout_last_position(layout, Min(tick, layout->max_tick));
}

/*
 * Is far more reserved than is needed?  That happens when a clock was ahead for a while, and
 * after a crash mints would have to wait until then.  Both positions are ends of ticks.
 */
bool
snowflake_reserve_is_too_far(const SnowflakeView *view, TimestampTz now)
{
	uint64		needed = reserve_up_to(Max(view->last, view->floor), now);

	return snowflake_generator_time(view->stored) - snowflake_generator_time(needed) >
		(snowflake_reservation_ms + snowflake_max_jump_ms) * INT64CONST(1000) +
		snowflake_server_layout.tick_usec;
}

/* The time of the newest position that any node ID had, for a re-created table. */
static TimestampTz
highest_time(const SnowflakeView *view)
{
	return view->highest == 0 ? DT_NOBEGIN : snowflake_generator_time(view->highest);
}

static void
write_row(int32 node, uint64 until, const SnowflakeView *view)
{
	snowflake_reservation_table_write(node, snowflake_generator_time(until), highest_time(view));
}

/*
 * Store the exact end of what was issued, so that the next start need not wait.  The gate is
 * closed, so "last" no longer changes.  If nothing was issued since the opening, the end is what the
 * node ID had before: the opening itself has stored nothing beyond.
 *
 * This lowers what is reserved, so a standby that does not receive it is on the safe side, and
 * there is no need to wait for one.
 */
void
snowflake_reserve_store_end(void)
{
	SnowflakeView view;
	bool		unused;

	snowflake_generator_view(&view);
	unused = snowflake_generator_is_unused(&view);
	if (!unused || view.stored > view.last)
	{

		snowflake_keeper_transaction_begin("storing the end of the reservation");
		(void) set_config_option("synchronous_commit", "local",
								 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
								 true, 0, false);
		write_row(view.node, unused ? view.own_last : view.last, &view);
		snowflake_keeper_transaction_commit();
	}
	snowflake_generator_end_stored();
}

/*
 * A promoted standby, or a copy, may have its node ID from the server that it is a copy of.  If
 * that one still mints, IDs are issued twice, so log at the first opening where the node ID
 * comes from and whether it was in use before.
 */
static void
log_inherited_node(int32 node, TimestampTz own_until)
{
	char	   *origin = snowflake_node_source_origin();
	bool		used = !TIMESTAMP_IS_NOBEGIN(own_until);

	ereport(LOG,
			errmsg("this server was started as a standby or from a backup, and now mints with node ID %d",
				   node),
			used ?
			errdetail("The node ID comes from %s. According to the reservation, node ID %d was in use before, until \"%s\" at the latest.",
					  origin, node, timestamptz_to_str(own_until)) :
			errdetail("The node ID comes from %s. According to the reservation, node ID %d was not in use before.",
					  origin, node),
			used && snowflake_node_source != NODE_FROM_LEASE ?
			errhint("If another server used it and may still mint, set %s to a number of this server's own.",
					snowflake_node_source_settings()) : 0);
}

/*
 * Log that the host gives another node ID than at the last start: it may have been renamed or
 * got another address, or another interface is now the first one that is up.
 */
static void
log_other_node(int32 node, const SnowflakeReservation *stored)
{
	if (!snowflake_node_source_is_host() || stored->last_node < 0 || stored->last_node == node)
		return;
	ereport(LOG,
			errmsg("this server minted with node ID %d before, and now mints with node ID %d",
				   stored->last_node, node),
			errdetail("The node ID comes from %s. Node ID %d was in use until \"%s\" at the latest.",
					  snowflake_node_source_origin(), stored->last_node,
					  timestamptz_to_str(stored->until)),
			errhint("If another server may mint with node ID %d, set %s to a number of this server's own.",
					node, snowflake_node_source_settings()));
}

/*
 * Is the reservation elsewhere, or gone?  If nothing was minted yet there is none, and minting
 * starts at the clock.  But if this cluster has minted, that could be below IDs that were ahead of
 * the clock.  Shared memory knows how far they got, unless it is new: then an administrator has to
 * say so.
 */
static bool
is_lost(const SnowflakeView *view, bool found)
{
	Oid			kept_in = snowflake_reservation_home_database();

	return view->last == 0 && OidIsValid(kept_in) &&
		!(kept_in == MyDatabaseId && found);
}

/* Is it in its place, or did an administrator say where to start?  If not, the gate says why. */
static bool
check_place(const SnowflakeView *view, bool lost, uint32 requests)
{
	Oid			kept_in = snowflake_reservation_home_database();

	if (!lost || (requests & SNOWFLAKE_WANT_DATABASE))
		return true;

	/* log this once, not for each mint that finds the gate closed */
	if (view->gate != GATE_RESERVATION_LOST)
		ereport(LOG,
				errmsg("snowflake gate stays closed: the reservation of this server is not in database \"%s\"",
					   snowflake_database),
				errdetail("It was last seen in the database with OID %u.", kept_in));
	snowflake_generator_set_gate(GATE_RESERVATION_LOST);
	return false;
}

/*
 * Is there a table?  If not, it is created at the first mint: until then its absence may mean
 * that an administrator is about to create it, and the gate says that it is missing.
 */
static bool
check_table(bool exists, uint32 requests)
{
	if (exists)
		return true;
	if (!(requests & (SNOWFLAKE_WANT_GATE | SNOWFLAKE_WANT_FLOOR | SNOWFLAKE_WANT_DATABASE)))
	{
		snowflake_generator_set_gate(GATE_WAITING);
		return false;
	}
	snowflake_generator_set_gate(GATE_CREATING);
	snowflake_reservation_table_create();
	return true;
}

/* Is the stored layout the configured one, or accepted?  Otherwise the gate says why not. */
static bool
check_layout(const SnowflakeView *view, const char *configured, const char *other,
			 uint32 requests)
{
	if (other == NULL)
		return true;
	if (requests & SNOWFLAKE_WANT_LAYOUT)
	{
		snowflake_reservation_table_accept_layout();
		ereport(LOG,
				errmsg("accepting the snowflake layout \"%s\" in place of \"%s\"",
					   configured, other));
		return true;
	}
	if (view->gate != GATE_LAYOUT_CHANGED)
		ereport(LOG,
				errmsg("snowflake gate stays closed: snowflake.layout differs from the stored layout"),
				errdetail("The configured layout is \"%s\", the stored one \"%s\".",
						  configured, other));
	snowflake_generator_set_layout_changed(other);
	return false;
}

/*
 * Returns the position after which minting resumes: the end of the newest tick in which IDs may
 * have been issued by any node ID of this server whose order is kept, by this node ID, or
 * before the lease.  (In most layouts the IDs of one tick do not ascend across a change of
 * node.)  Sets *in_order to the first of these three.
 */
static uint64
resume_after(const SnowflakeView *view, const SnowflakeReservation *stored,
			 const SnowflakeNode *wanted, uint64 *in_order)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	uint64		last = view->in_order;

	if (last > 0)
		last = snowflake_layout_last_position(layout, snowflake_layout_position_tick(layout, last));
	*in_order = Max(last, end_of_reservation(stored->until));
	last = Max(*in_order, end_of_reservation(stored->own_until));
	return wanted->first > 0 ? Max(last, wanted->first - 1) : last;
}

/* The time of the newest position, for the judge of the clock. */
static TimestampTz
newest_time(uint64 position)
{
	return position == 0 ? SNOWFLAKE_CLOCK_NEVER : snowflake_generator_time(position);
}

/*
 * Begin to judge the clock, with the time in the table to compare it with.  This needs no node
 * ID: a lessee without a lease uses the clock that is believed to ask for one, from the
 * generator's position on.
 */
static void
start_clock(const SnowflakeView *view, const SnowflakeNode *wanted)
{
	SnowflakeReservation stored = SNOWFLAKE_NO_RESERVATION;
	uint64		newest,
				in_order;

	snowflake_keeper_transaction_begin("reading the reservation");
	if (snowflake_reservation_home_is_template(MyDatabaseId))
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("database \"%s\" is a template, and cannot keep the snowflake reservation",
					   snowflake_database),
				errhint("Change snowflake.database to a database that is not a template, and restart the server."));
	if (snowflake_reservation_table_exists())
		stored = snowflake_reservation_table_read(wanted->obstacle == GATE_OPEN ? wanted->node : -1,
												  DT_NOBEGIN);
	snowflake_keeper_transaction_commit();
	newest = resume_after(view, &stored, wanted, &in_order);
	snowflake_lease_state_need(newest);
	snowflake_clock_start(newest_time(newest));
}

/* Open the gate after the order was given up, which is durable.  The view is from before that. */
static void
open_at_clock(const SnowflakeView *view, const SnowflakeNode *wanted, uint64 last, uint64 limit,
			  TimestampTz now)
{
	/* the lead that IDs were allowed has ended */
	snowflake_keeper_state_request(SNOWFLAKE_WANT_LOOK);
	snowflake_generator_open_at_clock(wanted->node, wanted->grant, last, limit,
									  refill_from(limit, request_margin(last, now), wanted));
	ereport(LOG,
			errmsg("snowflake gate reopened for node ID %d", wanted->node),
			errdetail("Snowflakes are smaller than earlier ones, which go up to \"%s\".",
					  timestamptz_to_str(snowflake_generator_time(view->last))));
}

/*
 * Open the gate for the wanted node ID, if that is possible; otherwise leave it closed, with the
 * reason.
 *
 * Time is reserved only if a mint has asked for it, so that an opening by a clock that is years
 * ahead leaves nothing behind.  Otherwise the first mint asks.  Nothing needs to be durable then: no
 * mint may use anything, and the next opening finds the same rows.
 */
void
snowflake_reserve_open_gate(const SnowflakeNode *wanted, uint32 requests, TimestampTz now)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	int32		node = wanted->node;
	SnowflakeReservation stored = SNOWFLAKE_NO_RESERVATION;
	SnowflakeView view;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	const char *origin;
	bool		exists,
				found,
				lost,
				at_clock;
	uint64		last,
				own_last,
				in_order,
				limit;

	snowflake_generator_view(&view);
	if (!snowflake_clock_is_started())
	{
		/* another round reads the clock */
		start_clock(&view, wanted);
		snowflake_keeper_state_request(requests | SNOWFLAKE_WANT_LOOK);
		return;
	}
	if (wanted->obstacle != GATE_OPEN)
	{
		snowflake_generator_set_gate(wanted->obstacle);
		return;
	}

	snowflake_layout_print(layout, text, sizeof(text));
	snowflake_keeper_transaction_begin("opening the gate");
	exists = snowflake_reservation_table_exists();
	if (exists)
		stored = snowflake_reservation_table_read(node, highest_time(&view));
	found = !TIMESTAMP_IS_NOBEGIN(stored.until) || !TIMESTAMP_IS_NOBEGIN(stored.own_until);
	lost = is_lost(&view, found);
	if (!check_place(&view, lost, requests) ||
		!check_table(exists, requests))
	{
		snowflake_keeper_transaction_commit();
		return;
	}

	/* a table that was created just now may get a row for lost ones */
	if (!exists)
		stored = snowflake_reservation_table_read(node, highest_time(&view));
	if (!check_layout(&view, text, stored.other_layout, requests))
	{
		snowflake_keeper_transaction_commit();
		return;
	}

	/* what an administrator says in place of lost rows is for all node IDs */
	if (lost && view.floor > 0)
	{
		snowflake_reservation_table_raise(snowflake_generator_time(view.floor));
		stored = snowflake_reservation_table_read(node, DT_NOBEGIN);
	}

	/*
	 * a lease that takes the generator back does so once, also from floors
	 * that it has passed
	 */
	last = resume_after(&view, &stored, wanted, &in_order);
	if (lost)
		in_order = Max(in_order, view.floor);
	at_clock = wanted->at_clock && wanted->grant > view.newest_grant;
	if (at_clock)
		last = Max(Max(wanted->first - 1, end_of_reservation(stored.row_until)),
				   view.floor > view.last ? view.floor : 0);
	if (!snowflake_clock_is_believed())
	{
		snowflake_keeper_transaction_commit();
		snowflake_clock_start(newest_time(last));
		snowflake_generator_set_gate(GATE_CLOCK);
		return;
	}
	if (last > 0)
		snowflake_generator_set_allowance(snowflake_clock_raised(snowflake_generator_time(last)));
	limit = reserve_within(wanted, last, now);
	if (last >= wanted->end)
	{
		/* what was issued is ahead of the clock, beyond the end of the lease */
		snowflake_keeper_transaction_commit();
		snowflake_generator_set_gate(GATE_LEASE_ENDED);
		return;
	}
	if (!(requests & (SNOWFLAKE_WANT_GATE | SNOWFLAKE_WANT_TIME)))
		limit = last;

	snowflake_generator_set_gate(GATE_OPENING);
	if (at_clock)
		snowflake_reservation_table_give_up_order(now);
	if (limit > last || at_clock || (requests & SNOWFLAKE_WANT_DATABASE))
	{
		write_row(node, limit, &view);
		snowflake_counters_add(COUNTER_RESERVATIONS);
	}
	else if (found)
		snowflake_reservation_home_note();
	snowflake_keeper_transaction_commit();

	/*
	 * The reservation is durable from here on.
	 *
	 * A new grant is above everything that its node ID had before, as far as
	 * the coordinator knows: a row of this server's own counts nevertheless.
	 * A grant that the gate is opened for again, as after a node ID from a
	 * setting, is not new: it may have been used up to what its row says, or
	 * the row for lost ones.
	 */
	own_last = end_of_reservation(wanted->grant == 0 || wanted->grant <= view.newest_grant ?
								  stored.own_until : stored.row_until);
	if (wanted->first > 0)
		own_last = Max(own_last, wanted->first - 1);
	snowflake_generator_note_highest(end_of_reservation(stored.highest));
	snowflake_generator_set_stored(limit);
	limit = usable(limit, last, now);
	if (at_clock)
		open_at_clock(&view, wanted, last, limit, now);
	else
		snowflake_generator_open(node, wanted->grant, last, own_last, in_order,
								 limit, refill_from(limit, request_margin(last, now), wanted));

	origin = snowflake_node_source == NODE_FROM_SETTING ? "" :
		psprintf(" The node ID comes from %s.", snowflake_node_source_origin());
	ereport(LOG,
			errmsg("snowflake gate opened for node ID %d", node),
			last > 0 ?
			errdetail("The layout is \"%s\". Minting resumes after \"%s\".%s", text,
					  timestamptz_to_str(snowflake_generator_time(last)), origin) :
			errdetail("The layout is \"%s\". Nothing was minted before.%s", text, origin));
	if (view.last == 0 && view.inherited)
		log_inherited_node(node, stored.own_until);
	else if (view.last == 0)
		log_other_node(node, &stored);
}

/* May the order be given up?  snowflake_advance() may have set a floor since the gate was opened. */
static bool
can_reopen_at_clock(const SnowflakeView *view, TimestampTz now)
{
	return view->node == snowflake_keeper_state_restart_node() &&
		snowflake_generator_is_unused(view) &&
		snowflake_generator_time(view->last) - now > SNOWFLAKE_RESTART_LEAD_USEC &&
		snowflake_generator_time(Max(view->own_last, view->floor)) <= now;
}

/*
 * Give up the order of a generator that is far ahead of the clock: open the gate again after what
 * the node itself has had, if nothing was issued since it was opened.  snowflake_restart_at_clock()
 * has checked the same before it asked.
 *
 * The gate is open.  It is closed before the last check, so that no mint slips past.  If this fails,
 * the next round stores the end and opens as usual.
 */
void
snowflake_reserve_reopen_at_clock(const SnowflakeNode *wanted, TimestampTz now)
{
	SnowflakeView view;
	uint64		last,
				limit;

	snowflake_generator_view(&view);
	if (!can_reopen_at_clock(&view, now))
		return;
	snowflake_generator_close(GATE_OPENING);
	snowflake_generator_view(&view);
	if (!can_reopen_at_clock(&view, now))
		return;

	snowflake_keeper_transaction_begin("giving up the order");
	snowflake_reservation_table_give_up_order(now);
	last = Max(view.own_last, view.floor);
	limit = reserve_within(wanted, last, now);
	write_row(view.node, limit, &view);
	snowflake_keeper_transaction_commit();

	snowflake_counters_add(COUNTER_RESERVATIONS);
	snowflake_generator_set_stored(limit);
	if (wanted->grant == 0)
		snowflake_lease_state_retire();
	open_at_clock(&view, wanted, last, usable(limit, last, now), now);
}

/*
 * Reserve more, ahead of the newest position, the clock or the floor, and then raise the limit.
 * The gate is open.  After an error in between, mints still have what was reserved before.
 */
void
snowflake_reserve_more(const SnowflakeView *view, const SnowflakeNode *wanted,
					   TimestampTz now)
{
	uint64		last = Max(view->last, view->floor);
	uint64		stored = Max(reserve_within(wanted, last, now), view->stored);
	uint64		limit = Min(usable(stored, last, now), wanted->end);
	uint64		at_once = Min(usable(view->stored, last, now), wanted->end);
	TimestampTz newest = snowflake_generator_time(last);
	int64		half_usec = request_margin(last, now);
	TimestampTz base = reach(now, 0);

	if (is_ahead(newest, now))
		base = Max(base, newest);

	/*
	 * More than half is left: the mint that asked is waiting for the clock,
	 * or had asked before the last extension, or the setting was lowered.
	 */
	if (limit <= view->limit ||
		(view->floor <= view->limit &&
		 snowflake_generator_time(view->limit) > base + half_usec))
	{
		snowflake_generator_set_refill(refill_from(view->limit, half_usec, wanted));
		return;
	}

	/*
	 * first what is stored already: that does not depend on the commit below
	 */
	if (at_once > view->limit)
		snowflake_generator_extend(at_once, refill_from(at_once, half_usec, wanted));

	/* if half of what is reserved is left, that was all */
	if (limit <= view->stored &&
		snowflake_generator_time(view->stored) >=
		base + (is_ahead(newest, now) ? half_usec : snowflake_reservation_ms * INT64CONST(500)))
		return;

	snowflake_keeper_transaction_begin("extending the reservation");
	write_row(view->node, stored, view);
	snowflake_keeper_transaction_commit();

	/* durable from here on */
	snowflake_counters_add(COUNTER_RESERVATIONS);
	snowflake_generator_set_stored(stored);
	snowflake_generator_extend(limit, refill_from(limit, half_usec, wanted));
}
