/*-------------------------------------------------------------------------
 *
 * frontier_sample.c
 *	  Computed frontiers, for snapshots that were taken later.
 *
 * A frontier is right for every snapshot that was taken after it was computed.  Backends
 * publish it here with two numbers that were read afterwards.  From these, others can tell
 * that a snapshot is later still:
 *
 * - "next", the next transaction ID.  A snapshot whose xmax is larger was
 *	 taken after the end of a transaction that had no ID yet when "next" was
 *	 read.
 *
 * - "xmax", one above the newest transaction that had ended.  A snapshot of this
 *	 server's process array has that as its xmax, which only goes up: if it is
 *	 larger, the snapshot was taken later.  It is at most "next", so it is the
 *	 better test.  But a snapshot that a logical slot exported has the next
 *	 transaction ID of its time as its xmax, so a snapshot that may be imported must
 *	 be tested with "next".
 *
 * It must be larger, not equal: between two snapshots with the same xmax, a
 * transaction with a smaller ID may have ended.
 *
 * A sample is about one database, but the keeper's are about all of them, for the first
 * readers.  When the generator has gone back (snowflake_restart_at_clock()), earlier ones
 * are void: IDs below them may be minted.
 *
 * Each database has a row of samples, the newest first.  A sample that is replaced moves
 * on to the next place if it is enough newer than the one there; that difference doubles
 * from place to place.  So a snapshot of any age finds a sample that is not much older
 * than itself.  If more databases read frontiers than there are rows, the one that has not
 * published for longest loses its row, and its snapshots find less.
 *
 * All of this is protected by one lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/clock.h"
#include "base/compat.h"
#include "frontier/frontier.h"

#define NUM_ROWS		16		/* the first one is for all databases */
#define NUM_PLACES		16		/* for the last 16 s, and for what is older */
#define FIRST_GAP_USEC	1000

typedef struct Place
{
	SnowflakeFrontierSample sample;
	int64		at_usec;		/* on the monotonic clock; 0: empty */
} Place;

typedef struct Row
{
	Oid			database;		/* InvalidOid: all, or the row is empty */
	Place		places[NUM_PLACES];
} Row;

typedef struct Samples
{
	LWLock		lock;
	Row			rows[NUM_ROWS];
} Samples;

/* NULL if the library was not preloaded. */
static Samples *samples = NULL;

Size
snowflake_frontier_sample_size(void)
{
	return MAXALIGN(sizeof(Samples));
}

/* The caller holds AddinShmemInitLock. */
void
snowflake_frontier_sample_attach(int tranche)
{
	bool		found;

	samples = ShmemInitStruct("snowflake frontier samples",
							  snowflake_frontier_sample_size(), &found);
	if (found)
		return;
	memset(samples, 0, sizeof(*samples));
	LWLockInitialize(&samples->lock, tranche);
}

/* Returns the row of a database, or the oldest row, emptied.  The caller holds the lock exclusively. */
static Row *
row_for(Oid database)
{
	Row		   *oldest = &samples->rows[1];

	if (!OidIsValid(database))
		return &samples->rows[0];
	for (int i = 1; i < NUM_ROWS; i++)
	{
		Row		   *row = &samples->rows[i];

		if (row->database == database)
			return row;
		if (row->places[0].at_usec < oldest->places[0].at_usec)
			oldest = row;
	}
	memset(oldest, 0, sizeof(*oldest));
	oldest->database = database;
	return oldest;
}

/* Publish a sample for a database, or for all of them (InvalidOid). */
void
snowflake_frontier_sample_publish(Oid database, const SnowflakeFrontierSample *sample)
{
	int64		gap_usec = FIRST_GAP_USEC;
	Place		place;
	Row		   *row;

	place.sample = *sample;
	place.at_usec = snowflake_clock_monotonic_usec();

	LWLockAcquire(&samples->lock, LW_EXCLUSIVE);
	row = row_for(database);
	for (int i = 0; i < NUM_PLACES; i++)
	{
		Place		replaced = row->places[i];

		row->places[i] = place;
		if (replaced.at_usec == 0)
			break;
		place = replaced;
		if (i + 1 < NUM_PLACES && place.at_usec - row->places[i + 1].at_usec < gap_usec)
			break;
		gap_usec *= 2;
	}
	LWLockRelease(&samples->lock);
}

/*
 * Was a snapshot with this xmax certainly taken after the sample?  "imported" says
 * that it may not come from this server's process array.
 */
static bool
is_before(const SnowflakeFrontierSample *sample,
		  FullTransactionId xmax, bool imported)
{
	return FullTransactionIdPrecedes(imported ? sample->next : sample->xmax, xmax);
}

/*
 * Returns the largest frontier of a database that is right for such a snapshot, or -1
 * if none is known.  "lowered_at" is the generator's, read after the snapshot was
 * taken.  Takes the lock, shared.
 */
int64
snowflake_frontier_sample_find(Oid database, uint32 lowered_at,
							   FullTransactionId xmax, bool imported)
{
	int64		id = -1;

	LWLockAcquire(&samples->lock, LW_SHARED);
	for (int i = 0; i < NUM_ROWS; i++)
	{
		Row		   *row = &samples->rows[i];

		if (i > 0 && row->database != database)
			continue;
		for (int j = 0; j < NUM_PLACES && row->places[j].at_usec != 0; j++)
		{
			SnowflakeFrontierSample *sample = &row->places[j].sample;

			if (sample->id > id && sample->lowered_at == lowered_at &&
				is_before(sample, xmax, imported))
				id = sample->id;
		}
	}
	LWLockRelease(&samples->lock);
	return id;
}
