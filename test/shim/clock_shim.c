/*-------------------------------------------------------------------------
 *
 * clock_shim.c
 *		A wall clock that tests can step, for LD_PRELOAD into a server.
 *
 * Adds an offset to every reading of the real-time clock.  The offset is a
 * single int64 of nanoseconds in native byte order, in the file that the
 * environment variable SNOWFLAKE_CLOCK_FILE names.  Every process maps that
 * file, so writing the eight bytes steps the clock of all processes of a
 * running server at once, between one reading and the next.  Without the
 * variable, or without the file, the offset is 0.
 *
 * CLOCK_MONOTONIC and CLOCK_BOOTTIME are left alone, as they are when an
 * administrator sets the clock, unless the file has eight more bytes, which are
 * their offset: so a test can let a day pass.  Where yet another eight are not
 * 0, the real-time clock stands still at that many nanoseconds.  Where one of the
 * next three is not 0, so does CLOCK_REALTIME, CLOCK_MONOTONIC or CLOCK_BOOTTIME: all of
 * them together, so that a server does not notice how long a busy machine takes for
 * what is done meanwhile.  A reading costs about 15 ns more than without the shim, so a
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

static const int64_t no_offset_nsec = 0;
static const int64_t *offset_nsec = &no_offset_nsec;
static const int64_t *monotonic_offset_nsec = &no_offset_nsec;
static const int64_t *stopped_at_nsec = &no_offset_nsec;
static const int64_t *all_stopped_at_nsec = NULL;	/* of three */

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
			/* beyond the end of a shorter file lies a SIGBUS, not a zero */
			off_t		size = lseek(fd, 0, SEEK_END);

			if (size >= (off_t) sizeof(int64_t))
			{
				const int64_t *map = mmap(NULL, size, PROT_READ, MAP_SHARED,
										  fd, 0);

				if (map != MAP_FAILED)
				{
					offset_nsec = map;
					if (size >= (off_t) (2 * sizeof(int64_t)))
						monotonic_offset_nsec = map + 1;
					if (size >= (off_t) (3 * sizeof(int64_t)))
						stopped_at_nsec = map + 2;
					if (size >= (off_t) (6 * sizeof(int64_t)))
						all_stopped_at_nsec = map + 3;
				}
			}
			close(fd);
		}
	}
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	int			result;

	if (real_clock_gettime == NULL)
		clock_shim_init();
	result = real_clock_gettime(clock, ts);
	if (result == 0 &&
		(clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ||
		 clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME))
	{
		int			steady = clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE;
		int64_t		offset = __atomic_load_n(steady ? monotonic_offset_nsec : offset_nsec,
											 __ATOMIC_RELAXED);
		int64_t		stopped_at = steady ? 0 :
		__atomic_load_n(stopped_at_nsec, __ATOMIC_RELAXED);

		if (all_stopped_at_nsec != NULL)
		{
			int			i = !steady ? 0 : clock == CLOCK_MONOTONIC ? 1 : 2;
			int64_t		all_stopped_at = __atomic_load_n(all_stopped_at_nsec + i,
														 __ATOMIC_RELAXED);

			if (all_stopped_at != 0)
				stopped_at = all_stopped_at;
		}
		if (stopped_at != 0)
		{
			ts->tv_sec = stopped_at / NSEC_PER_SEC;
			ts->tv_nsec = stopped_at % NSEC_PER_SEC;
			return result;
		}
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
