/*-------------------------------------------------------------------------
 *
 * server.c
 *	  Stand-ins for the few functions of the server that the fuzzed sources
 *	  call, so that they run unmodified in a process of their own.
 *
 * Memory comes from malloc, and strings are printed by libc's functions, so
 * that the sanitizers watch both.  Dates are libc's: a second opinion on the
 * server's arithmetic, and the same calendar.
 *
 *-------------------------------------------------------------------------
 */
#include "server.h"

#include <time.h>

#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/palloc.h"

#undef snprintf
#undef vsnprintf
#undef fprintf

#define MAX_CHUNKS	10000

int			fuzz_sqlstate;
char		fuzz_message[8192];
jmp_buf    *fuzz_catcher;

static void *chunks[MAX_CHUNKS];
static int	nchunks;
static uint64 random_state;

/*
 * For the fuzzers
 */

void
fuzz_finding(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

void
fuzz_reset_memory(void)
{
	while (nchunks > 0)
		free(chunks[--nchunks]);
}

bool
fuzz_call(PGFunction function, int nargs, Datum *args, Datum *result)
{
	LOCAL_FCINFO(fcinfo, 4);
	jmp_buf		catcher;

	InitFunctionCallInfoData(*fcinfo, NULL, nargs, InvalidOid, NULL, NULL);
	for (int i = 0; i < nargs; i++)
	{
		fcinfo->args[i].value = args[i];
		fcinfo->args[i].isnull = false;
	}

	fuzz_sqlstate = 0;
	fuzz_message[0] = '\0';
	if (setjmp(catcher) != 0)
	{
		/* no error without a code and a message */
		REQUIRE(fuzz_sqlstate != 0 && fuzz_message[0] != '\0');
		return false;
	}
	fuzz_catcher = &catcher;
	*result = function(fcinfo);
	REQUIRE(!fcinfo->isnull);
	return true;
}

char *
fuzz_string(const uint8 *data, size_t size)
{
	char	   *string = palloc(size + 1);

	memcpy(string, data, size);
	string[size] = '\0';
	return string;
}

void
fuzz_seed(const uint8 *data, size_t size)
{
	random_state = UINT64CONST(0xcbf29ce484222325);
	for (size_t i = 0; i < size; i++)
		random_state = (random_state ^ data[i]) * UINT64CONST(0x100000001b3);
}

/* splitmix64 */
uint64
fuzz_random(void)
{
	uint64		z = (random_state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/*
 * Memory
 */

void *
palloc(Size size)
{
	REQUIRE(nchunks < MAX_CHUNKS);
	return chunks[nchunks++] = malloc(size);
}

void
pfree(void *pointer)
{
	REQUIRE(pointer != NULL);	/* the chunk itself waits for the reset */
}

char *
pstrdup(const char *in)
{
	return strcpy(palloc(strlen(in) + 1), in);
}

char *
psprintf(const char *fmt,...)
{
	va_list		args;
	int			len;
	char	   *result;

	va_start(args, fmt);
	len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	result = palloc(len + 1);
	va_start(args, fmt);
	vsnprintf(result, len + 1, fmt, args);
	va_end(args);
	return result;
}

int
pg_snprintf(char *str, size_t count, const char *fmt,...)
{
	va_list		args;
	int			len;

	va_start(args, fmt);
	len = vsnprintf(str, count, fmt, args);
	va_end(args);
	return len;
}

/* libc may or may not have this one, and sees to its own declaration */
#ifndef HAVE_STRLCPY
size_t
strlcpy(char *dst, const char *src, size_t siz)
{
	snprintf(dst, siz, "%s", src);
	return strlen(src);
}
#endif

/*
 * Errors
 */

bool
errstart(int elevel, const char *domain)
{
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return true;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	longjmp(*fuzz_catcher, 1);
}

/* the soft errors of PostgreSQL 16 and later, which nobody asks for here */
bool		errsave_start(struct Node *context, const char *domain);
void		errsave_finish(struct Node *context, const char *filename, int lineno,
						   const char *funcname);

bool
errsave_start(struct Node *context, const char *domain)
{
	REQUIRE(context == NULL);
	return true;
}

void
errsave_finish(struct Node *context, const char *filename, int lineno,
			   const char *funcname)
{
	longjmp(*fuzz_catcher, 1);
}

int
errcode(int sqlerrcode)
{
	fuzz_sqlstate = sqlerrcode;
	return 0;
}

/* Each part is printed, so that the sanitizers see what it reads. */
#define PRINT_PART(buf, size) \
	do { \
		va_list args; \
		va_start(args, fmt); \
		vsnprintf(buf, size, fmt, args); \
		va_end(args); \
	} while (0)

int
errmsg(const char *fmt,...)
{
	PRINT_PART(fuzz_message, sizeof(fuzz_message));
	return 0;
}

int
errdetail(const char *fmt,...)
{
	char		detail[8192];

	PRINT_PART(detail, sizeof(detail));
	return 0;
}

int
errhint(const char *fmt,...)
{
	char		hint[8192];

	PRINT_PART(hint, sizeof(hint));
	return 0;
}

void
ExceptionalCondition(const char *conditionName,
#if PG_VERSION_NUM < 160000
					 const char *errorType,
#endif
					 const char *fileName, int lineNumber)
{
	fuzz_finding(fileName, lineNumber, conditionName);
}

/*
 * Values
 */

struct varlena *
pg_detoast_datum_packed(struct varlena *datum)
{
	return datum;
}

text *
cstring_to_text_with_len(const char *s, int len)
{
	text	   *result = palloc(len + VARHDRSZ);

	SET_VARSIZE(result, len + VARHDRSZ);
	memcpy(VARDATA(result), s, len);
	return result;
}

char *
text_to_cstring(const text *t)
{
	return fuzz_string((const uint8 *) VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
}

int64
pq_getmsgint64(StringInfo msg)
{
	int64		value;

	memcpy(&value, msg->data, sizeof(value));
	return value;
}

/* those of bigint, which write what is not fuzzed */
Datum
int8out(PG_FUNCTION_ARGS)
{
	REQUIRE(false);
	return 0;
}

Datum
int8send(PG_FUNCTION_ARGS)
{
	REQUIRE(false);
	return 0;
}

/*
 * Dates
 */

const int	day_tab[2][13] =
{
	{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0},
	{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0}
};

int
date2j(int year, int month, int day)
{
	struct tm	tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};

	return (int) (timegm(&tm) / SECS_PER_DAY) + UNIX_EPOCH_JDATE;
}

void
j2date(int jd, int *year, int *month, int *day)
{
	time_t		seconds = (time_t) (jd - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	struct tm	tm;

	REQUIRE(gmtime_r(&seconds, &tm) != NULL);
	*year = tm.tm_year + 1900;
	*month = tm.tm_mon + 1;
	*day = tm.tm_mday;
}
