/*-------------------------------------------------------------------------
 *
 * floor.c
 *	  What the benchmarks need inside the server: a function that does nothing,
 *	  a stopwatch for single calls, and one for the time on a processor.
 *
 * A module of its own, so that nothing of it is in the extension.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_cpu);
PG_FUNCTION_INFO_V1(bench_floor);
PG_FUNCTION_INFO_V1(bench_latency);

/*
 * Buckets of the histogram: values below 32 have one each, above that each
 * power of two is cut into 32, so that a bucket is at most 3 % wide.
 */
#define SUB_BITS	5
#define SUB_BUCKETS (1 << SUB_BITS)
#define BUCKETS		((64 - SUB_BITS + 1) * SUB_BUCKETS)

/* A longer delay is a stall: the pace starts anew. */
#define STALL_NSEC	100000

static inline uint64
monotonic_nsec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64) now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int
bucket(uint64 nsec)
{
	int			exponent;

	if (nsec < SUB_BUCKETS)
		return (int) nsec;
	exponent = pg_leftmost_one_pos64(nsec);
	return (exponent - SUB_BITS + 1) * SUB_BUCKETS +
		(int) ((nsec >> (exponent - SUB_BITS)) & (SUB_BUCKETS - 1));
}

/*
 * bench_cpu(): the nanoseconds that this process has spent on a processor, so
 * that what else runs on the machine does not count.
 */
Datum
bench_cpu(PG_FUNCTION_ARGS)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	PG_RETURN_INT64((int64) now.tv_sec * 1000000000 + now.tv_nsec);
}

/* The executor's price of calling any C function. */
Datum
bench_floor(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(1);
}

/*
 * bench_latency(function regprocedure, argument oid, calls integer,
 * calls_per_second float8): call the function that often, at that pace, and
 * return the histogram of how many nanoseconds each call took, with the longest
 * one appended.  The argument is for functions that take one.
 *
 * The pace is kept by spinning: a sleep would end in a wakeup and cold caches,
 * which are not the function's fault.  Time lost to a long stall is not made up
 * for, since that would be a burst above the pace.
 */
Datum
bench_latency(PG_FUNCTION_ARGS)
{
	Oid			function = PG_GETARG_OID(0);
	int32		calls = PG_GETARG_INT32(2);
	double		interval_nsec = 1e9 / PG_GETARG_FLOAT8(3);
	int64	   *counts = palloc0((BUCKETS + 1) * sizeof(int64));
	Datum	   *result = palloc((BUCKETS + 1) * sizeof(Datum));
	double		due_nsec = monotonic_nsec();
	FmgrInfo	flinfo;

	LOCAL_FCINFO(call, 1);

	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*call, &flinfo, get_func_nargs(function),
							 InvalidOid, NULL, NULL);
	if (call->nargs > 1)
		elog(ERROR, "function %u has more than one argument", function);
	call->args[0].value = PG_GETARG_DATUM(1);
	call->args[0].isnull = false;

	for (int i = 0; i < calls; i++)
	{
		uint64		before_nsec;
		uint64		took_nsec;

		CHECK_FOR_INTERRUPTS();
		do
			before_nsec = monotonic_nsec();
		while (before_nsec < due_nsec);
		due_nsec = (before_nsec - due_nsec > STALL_NSEC ? before_nsec : due_nsec) + interval_nsec;

		(void) FunctionCallInvoke(call);

		took_nsec = monotonic_nsec() - before_nsec;
		counts[bucket(took_nsec)]++;
		counts[BUCKETS] = Max(counts[BUCKETS], (int64) took_nsec);
	}

	for (int i = 0; i <= BUCKETS; i++)
		result[i] = Int64GetDatum(counts[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(result, BUCKETS + 1, INT8OID,
										  sizeof(int64), FLOAT8PASSBYVAL,
										  TYPALIGN_DOUBLE));
}
