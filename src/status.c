/*-------------------------------------------------------------------------
 *
 * status.c
 *	  What an operator looks at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "generator.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(snowflake_status);

#define STATUS_COLUMNS	11

/*
 * The state of the generator.  Its parts are read one after the other, while
 * minting goes on; each is right for its moment, and so is the node without the
 * lock.
 */
Datum
snowflake_status(PG_FUNCTION_ARGS)
{
	const SnowflakeLayout *layout = &snowflake_server_layout;
	SnowflakeGenerator *gen = snowflake_generator;
	char		text[SNOWFLAKE_LAYOUT_TEXT_SIZE];
	TupleDesc	tupdesc;
	Datum		values[STATUS_COLUMNS] = {0};
	bool		nulls[STATUS_COLUMNS];

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	memset(nulls, true, sizeof(nulls));
#define PUT(column, value) (values[column] = (value), nulls[column] = false)

	snowflake_layout_print(layout, text, sizeof(text));
	PUT(2, CStringGetTextDatum(text));

	if (gen == NULL)
		PUT(0, CStringGetTextDatum("closed: the library is not preloaded"));
	else
	{
		SnowflakeGate gate = pg_atomic_read_u32(&gen->gate);
		uint64		last = pg_atomic_read_u64(&gen->last);
		uint32		keeper_pid = pg_atomic_read_u32(&gen->keeper_pid);

		PUT(0, CStringGetTextDatum(RecoveryInProgress() ?
								   "closed: the server is in recovery" :
								   snowflake_gate_reason()));
		if (gate == GATE_OPEN)
		{
			Interval   *lead = palloc0(sizeof(Interval));

			lead->time = snowflake_position_time(layout, last) -
				snowflake_wall_clock();
			PUT(1, Int32GetDatum(gen->node));
			PUT(4, IntervalPGetDatum(lead));
			PUT(5, TimestampTzGetDatum(snowflake_position_time(layout,
															   pg_atomic_read_u64(&gen->limit))));

			/* a position to which "last" was merely raised is no ID */
			if (last != pg_atomic_read_u64(&gen->raised_to))
				PUT(3, Int64GetDatum(snowflake_position_id(last)));
		}
		if (keeper_pid != 0)
			PUT(6, Int32GetDatum((int32) keeper_pid));
		PUT(7, Int64GetDatum(pg_atomic_read_u64(&gen->clock_waits)));
		PUT(8, Int64GetDatum(pg_atomic_read_u64(&gen->reservation_waits)));
		PUT(9, Int64GetDatum(pg_atomic_read_u64(&gen->reservations)));
		PUT(10, Int64GetDatum(pg_atomic_read_u64(&gen->clock_steps_back)));
	}

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}
