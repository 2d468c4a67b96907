/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  The keys that encrypt public IDs, read from a file.
 *
 * Each line of the file that snowflake_public.key_file names has a number and
 * a key of 256 bits, as hexadecimal digits; lines that are empty or start with
 * # are skipped.
 *
 * Each process checks the file when a transaction first needs a key, and reads it if
 * it has changed.  So a replaced file counts even if a reload of the configuration
 * failed, and all of a transaction uses the same keys.  They are never in shared
 * memory, in a setting, in SQL or in the log.  Errors show the number of a line, but
 * neither the file's content nor its path.
 *
 * A file that was changed a moment ago may be half written, and half a file may be a
 * valid file with fewer keys.  So it is read only if it has not changed for SETTLE_MS, and
 * does not change while it is read.  Until then, a process that has keys goes on with them,
 * and one that has none waits.  So a change after the file was read has another time than
 * the one before.
 *
 * A refused file is an error in every session that needs a key, also in one that has keys:
 * one that was removed must not stay in use.  The file is read again until it is valid.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/compat.h"
#include "public/keys.h"

#ifdef __APPLE__
#define st_mtim		st_mtimespec
#define st_ctim		st_ctimespec
#endif

#define KEY_BYTES		32
#define MAX_FILE_BYTES	16384
#define SETTLE_MS		500
#define SETTING			"snowflake_public.key_file" /* in errors, for the path */

static SnowflakeKeys keys = {0};

/* The file that they are from, as it was, and the last transaction that checked it. */
static struct stat keys_file;
static LocalTransactionId keys_lxid = InvalidLocalTransactionId;

static char *key_file = NULL;

extern PGDLLEXPORT void _PG_init(void);

/* Is it the same file, unchanged?  A change also changes the ctime, which cannot be set. */
static bool
is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
		a->st_size == b->st_size &&
		a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
		a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Was the file changed just now?  If it seems to be from the future, a clock is wrong. */
static bool
is_fresh(const struct stat *file)
{
	struct timeval now;
	int64		ms;

	gettimeofday(&now, NULL);
	ms = ((int64) now.tv_sec - file->st_ctim.tv_sec) * 1000 +
		(now.tv_usec / 1000 - file->st_ctim.tv_nsec / 1000000);
	return ms >= 0 && ms < SETTLE_MS;
}

static void
wait_a_moment(void)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SnowflakePublicKeyFile");
	(void) WaitLatch(MyLatch,
					 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 SETTLE_MS / 20, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Refuse a file that others can read, or could have written. */
static void
check_file(const struct stat *file)
{
	/* as the server does for its private SSL key */
	if (file->st_uid != geteuid() && file->st_uid != 0)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" belongs to another user", SETTING),
				errdetail("It must be owned by the user that runs the server, or by root."));
	if (file->st_mode & (file->st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO :
						 S_IRWXG | S_IRWXO))
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" has group or world access", SETTING),
				errdetail("It must have permissions u=rw (0600) or less if it is owned by the user that runs the server, or u=rw,g=r (0640) or less if it is owned by root."));
}

/* Read the file, which has secrets, and its state.  Returns NULL if it may be half written. */
static char *
read_file(int *file_bytes, struct stat *file)
{
	struct stat after;
	char	   *content;
	int			length = 0;
	int			bytes;
	int			read_errno;
	int			fd;
	bool		is_changed;

	/* do not wait for a pipe, which is refused below */
	fd = OpenTransientFile(key_file, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not open the file of \"%s\": %m", SETTING));
	if (fstat(fd, file) != 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not stat the file of \"%s\": %m", SETTING));
	if (!S_ISREG(file->st_mode))
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" is not a regular file", SETTING));
	if (is_fresh(file))
	{
		CloseTransientFile(fd);
		return NULL;
	}
	check_file(file);

	content = palloc(MAX_FILE_BYTES + 1);
	while ((bytes = read(fd, content + length, MAX_FILE_BYTES + 1 - length)) > 0)
		length += bytes;
	read_errno = errno;
	is_changed = fstat(fd, &after) != 0 || !is_same_file(file, &after);
	if (bytes < 0 || length > MAX_FILE_BYTES || is_changed)
		explicit_bzero(content, length);
	errno = read_errno;
	if (bytes < 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not read the file of \"%s\": %m", SETTING));
	if (length > MAX_FILE_BYTES)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" is longer than %d bytes",
					   SETTING, MAX_FILE_BYTES));
	CloseTransientFile(fd);
	if (is_changed)
		return NULL;

	/* what comes after a zero byte must not be ignored silently */
	for (int i = 0; i < length; i++)
		if (content[i] == '\0')
			content[i] = '?';
	content[length] = '\0';
	*file_bytes = length;
	return content;
}

/* Parse a line that is not a comment.  Returns false if it is not a number and a key. */
static bool
parse_line(const char *line, int *number, uint8 *key)
{
	char	   *end;
	long		parsed = strtol(line, &end, 10);

	if (*line < '0' || *line > '9' || parsed > SNOWFLAKE_MAX_KEY_NUMBER ||
		(*end != ' ' && *end != '\t'))
		return false;
	*number = (int) parsed;
	line = end + strspn(end, " \t");
	if (strspn(line, "0123456789abcdefABCDEF") < 2 * KEY_BYTES)
		return false;
	hex_decode(line, 2 * KEY_BYTES, (char *) key);
	line += 2 * KEY_BYTES;
	return line[strspn(line, " \t\r")] == '\0';
}

/* Add a key.  Returns NULL, or a sentence that says why not. */
static const char *
add_key(int number, const uint8 *key)
{
	int			at = keys.count;

	if (keys.count == SNOWFLAKE_MAX_KEYS)
		return "There are more than " CppAsString2(SNOWFLAKE_MAX_KEYS) " keys.";
	while (at > 0 && keys.keys[at - 1].number > number)
		at--;
	if (at > 0 && keys.keys[at - 1].number == number)
		return "Its number has a key already.";
	memmove(&keys.keys[at + 1], &keys.keys[at], (keys.count - at) * sizeof(SnowflakeKey));
	keys.keys[at].number = number;
	keys.keys[at].aes = snowflake_cipher_aes_make(key, KEY_BYTES * 8);
	keys.count++;
	return NULL;
}

/*
 * Add the keys of a file's lines, overwriting them.  Returns NULL, or a sentence that says
 * what is wrong with line *line_number.
 */
static const char *
parse_lines(char *content, int *line_number)
{
	const char *complaint = NULL;
	char	   *next;

	*line_number = 0;
	for (char *line = content; line != NULL && complaint == NULL; line = next)
	{
		uint8		key[KEY_BYTES];
		int			number;

		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		++*line_number;
		line += strspn(line, " \t\r");
		if (*line == '\0' || *line == '#')
			continue;
		complaint = parse_line(line, &number, key) ? add_key(number, key) :
			"A line is a number from 0 to " CppAsString2(SNOWFLAKE_MAX_KEY_NUMBER)
			", a space, and a key of 64 hexadecimal digits.";
		explicit_bzero(key, sizeof(key));
	}
	return complaint;
}

static void
forget_keys(void)
{
	while (keys.count > 0)
		snowflake_cipher_aes_free(keys.keys[--keys.count].aes);
}

/* Replace the keys with those of the file.  An error leaves no keys. */
static void
load_keys(void)
{
	struct stat file;
	const char *complaint;
	char	   *content;
	int			length;
	int			line_number;

	forget_keys();
	keys.generation++;
	if (key_file[0] == '\0')
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("there is no key to encrypt snowflakes with"),
				errhint("Set \"%s\" to a file of keys, and reload the configuration.", SETTING));

	while ((content = read_file(&length, &file)) == NULL)
		wait_a_moment();
	complaint = parse_lines(content, &line_number);
	explicit_bzero(content, length);
	if (complaint != NULL)
	{
		forget_keys();
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("line %d of the file of \"%s\" is invalid", line_number, SETTING),
				errdetail_internal("%s", complaint));
	}
	for (int i = 0; i < keys.count; i++)
		if (keys.keys[i].aes == NULL)
		{
			forget_keys();
			elog(ERROR, "OpenSSL has no AES-256");
		}
	if (keys.count == 0)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" has no key", SETTING));
	pfree(content);
	keys_file = file;
}

/*
 * Returns the keys, at least one.  They are valid until the next call, and do not change
 * before the transaction ends.  All errors about the file are raised here, and leave none.
 */
const SnowflakeKeys *
snowflake_keys_get(void)
{
	struct stat file;

	if (likely(keys.count > 0 && keys_lxid == MyLocalXid))
		return &keys;
	if (keys.count == 0 || key_file[0] == '\0' || stat(key_file, &file) != 0 ||
		!(is_same_file(&file, &keys_file) || (S_ISREG(file.st_mode) && is_fresh(&file))))
		load_keys();
	keys_lxid = MyLocalXid;
	return &keys;
}

/* The library of the extension snowflake_public is loaded: define its setting. */
void
_PG_init(void)
{
	/* not all roles may see where the file is, and none may see its content */
	DefineCustomStringVariable(SETTING,
							   "Sets the file of the keys that encrypt snowflakes for the outside.",
							   "Each line is a number from 0 to 1023 and a key of 64 hexadecimal digits. The key of the highest number encrypts.",
							   &key_file,
							   "",
							   PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	MarkGUCPrefixReserved("snowflake_public");
}
