/*-------------------------------------------------------------------------
 *
 * clock_shim.c
 *		A wall clock that tests can step, for LD_PRELOAD into a server.
 *
 * The environment variable SNOWFLAKE_CLOCK_FILE names a file of five int64 in
 * native byte order, in nanoseconds: what is added to every reading of the
 * real-time clock; what is added to CLOCK_MONOTONIC and CLOCK_BOOTTIME, which
 * are left alone when an administrator sets the clock, so that a test can let a
 * day pass; and where CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME stand
 * still, unless it is 0, so that a server does not notice how long a busy
 * machine takes.  Every process maps that file, so writing it changes the
 * clocks of all processes of a running server at once, between one reading and
 * the next.  A reading costs about 15 ns more than without the shim, so a
 * server under it still runs at full speed.
 *
 *		cc -shared -fPIC -O2 -o clock_shim.so clock_shim.c -ldl
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC	INT64_C(1000000000)

static int	(*real_clock_gettime) (clockid_t, struct timespec *);

static const int64_t all_zero[5];
static const int64_t *file = all_zero;

/*
 * Other libraries' constructors may ask for the time before ours has run, so
 * the functions below call this as well; running twice does no harm.
 */
static void __attribute__((constructor))
clock_shim_init(void)
{
	const char *path = getenv("SNOWFLAKE_CLOCK_FILE");

	if (real_clock_gettime != NULL)
		return;
	real_clock_gettime = (int (*) (clockid_t, struct timespec *))
		dlsym(RTLD_NEXT, "clock_gettime");

	if (path != NULL)
	{
		int			fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
		{
			const int64_t *map = mmap(NULL, sizeof(all_zero), PROT_READ, MAP_SHARED, fd, 0);

			if (map != MAP_FAILED)
				file = map;
			close(fd);
		}
	}
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	int			result;
	int			which = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? 0 :
	clock == CLOCK_MONOTONIC ? 1 : clock == CLOCK_BOOTTIME ? 2 : -1;
	int64_t		offset;
	int64_t		stopped_at;

	if (real_clock_gettime == NULL)
		clock_shim_init();
	result = real_clock_gettime(clock, ts);
	if (result != 0 || which < 0)
		return result;

	stopped_at = __atomic_load_n(&file[2 + which], __ATOMIC_RELAXED);
	if (stopped_at != 0)
	{
		ts->tv_sec = stopped_at / NSEC_PER_SEC;
		ts->tv_nsec = stopped_at % NSEC_PER_SEC;
		return result;
	}
	offset = __atomic_load_n(&file[which > 0], __ATOMIC_RELAXED);
	ts->tv_sec += offset / NSEC_PER_SEC;
	ts->tv_nsec += offset % NSEC_PER_SEC;
	if (ts->tv_nsec < 0)
	{
		ts->tv_nsec += NSEC_PER_SEC;
		ts->tv_sec--;
	}
	else if (ts->tv_nsec >= NSEC_PER_SEC)
	{
		ts->tv_nsec -= NSEC_PER_SEC;
		ts->tv_sec++;
	}
	return result;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec ts;

	(void) tz;					/* obsolete, and PostgreSQL passes NULL */
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *t)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return (time_t) -1;
	if (t != NULL)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
