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
 * not the file's content, nor its path, which the setting shows to roles that may see
 * it.
 *
 * A file that was changed a moment ago may be half written, and half a file may be a
 * valid file with fewer keys.  So it is read only if it has not changed for
 * SETTLE_MS, and does not change while it is read.  Until then, a process that has
 * keys goes on with them, and one that has none waits.  It follows that a change
 * after the file was read has another time than the change before, so the two can be
 * distinguished.
 *
 * A refused file is an error in every session that needs a key, even one that
 * already has keys: a key that was removed must not stay in use in some sessions.
 * The file is read again until it is valid.
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

/* A file that was changed within this time may be half written. */
#define SETTLE_MS		500

/* Errors name the setting instead of the path. */
#define SETTING			"snowflake_public.key_file"

/* The parsed lines. */
typedef struct KeyLines
{
	int			count;
	int			numbers[SNOWFLAKE_MAX_KEYS];
	uint8		keys[SNOWFLAKE_MAX_KEYS][KEY_BYTES];
} KeyLines;

/* The keys of this process, in ascending order of their numbers. */
static SnowflakeKey keys[SNOWFLAKE_MAX_KEYS];
static int	nkeys = 0;
static uint32 generation = 0;

/* The file that they are from, as it was, and the last transaction that checked it. */
static struct stat keys_file;
static LocalTransactionId keys_lxid = InvalidLocalTransactionId;

static char *key_file = NULL;

/*
 * Is it the same file, unchanged?  A change of the content or the permissions
 * also changes the ctime, which cannot be set.
 */
static bool
is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
		a->st_size == b->st_size &&
		a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
		a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/*
 * Was the file changed just now?  A file from the future was not: then a clock is
 * wrong, and no session should wait for it.
 */
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
stat_file(int fd, struct stat *file)
{
	if (fstat(fd, file) != 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not stat the file of \"%s\": %m", SETTING));
}

/* Wait for a file that may be half written. */
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

/*
 * Read the file into a new string, which has secrets.  Sets its length, and *file
 * to its state.  Returns NULL if it may be half written.
 */
static char *
read_file(int *file_bytes, struct stat *file)
{
	struct stat after;
	char	   *content;
	int			length = 0;
	int			bytes;
	int			fd;

	/* do not wait for a pipe, which is refused below */
	fd = OpenTransientFile(key_file, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not open the file of \"%s\": %m", SETTING));
	stat_file(fd, file);
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
	if (bytes < 0 || length > MAX_FILE_BYTES)
	{
		int			save_errno = errno;

		explicit_bzero(content, length);
		errno = save_errno;
		if (bytes < 0)
			ereport(ERROR,
					errcode_for_file_access(),
					errmsg("could not read the file of \"%s\": %m", SETTING));
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" is longer than %d bytes",
					   SETTING, MAX_FILE_BYTES));
	}
	if (fstat(fd, &after) != 0 || !is_same_file(file, &after))
	{
		explicit_bzero(content, length);
		CloseTransientFile(fd);
		return NULL;
	}
	CloseTransientFile(fd);

	/* what comes after a zero byte must not be ignored silently */
	for (int i = 0; i < length; i++)
	{
		if (content[i] == '\0')
			content[i] = '?';
	}
	content[length] = '\0';
	*file_bytes = length;
	return content;
}

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Parse a line that is not a comment.  Returns false if it is not a number and a key. */
static bool
parse_line(const char *line, int *number, uint8 *key)
{
	*number = 0;
	if (*line < '0' || *line > '9')
		return false;
	for (; *line >= '0' && *line <= '9'; line++)
	{
		*number = *number * 10 + (*line - '0');
		if (*number > SNOWFLAKE_MAX_KEY_NUMBER)
			return false;
	}
	if (*line != ' ' && *line != '\t')
		return false;
	line += strspn(line, " \t");
	for (int i = 0; i < KEY_BYTES; i++, line += 2)
	{
		int			high = hex_value(line[0]);
		int			low = high < 0 ? -1 : hex_value(line[1]);

		if (low < 0)
			return false;
		key[i] = (uint8) (high << 4 | low);
	}
	return line[strspn(line, " \t\r")] == '\0';
}

/*
 * Parse the lines of a file, overwriting it, into ascending order of their
 * numbers.  Returns NULL on success, otherwise a sentence that says what is
 * wrong with line *line_number.
 */
static const char *
parse_lines(char *content, KeyLines *lines, int *line_number)
{
	char	   *next;

	lines->count = 0;
	*line_number = 0;
	for (char *line = content; line != NULL; line = next)
	{
		uint8		key[KEY_BYTES];
		const char *complaint;
		int			number;
		int			at;

		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		++*line_number;
		line += strspn(line, " \t\r");
		if (*line == '\0' || *line == '#')
			continue;

		complaint = parse_line(line, &number, key) ? NULL :
			psprintf("A line is a number from 0 to %d, a space, and a key of %d hexadecimal digits.",
					 SNOWFLAKE_MAX_KEY_NUMBER, 2 * KEY_BYTES);
		if (complaint == NULL && lines->count == SNOWFLAKE_MAX_KEYS)
			complaint = psprintf("There are more than %d keys.", SNOWFLAKE_MAX_KEYS);

		for (at = lines->count; complaint == NULL && at > 0; at--)
		{
			if (lines->numbers[at - 1] == number)
				complaint = "Its number has a key already.";
			if (lines->numbers[at - 1] < number)
				break;
		}
		if (complaint == NULL)
		{
			memmove(&lines->numbers[at + 1], &lines->numbers[at],
					(lines->count - at) * sizeof(lines->numbers[0]));
			memmove(lines->keys[at + 1], lines->keys[at],
					(lines->count - at) * sizeof(lines->keys[0]));
			lines->numbers[at] = number;
			memcpy(lines->keys[at], key, KEY_BYTES);
			lines->count++;
		}
		explicit_bzero(key, sizeof(key));
		if (complaint != NULL)
			return complaint;
	}
	return NULL;
}

static void
forget_keys(void)
{
	while (nkeys > 0)
		snowflake_cipher_aes_free(keys[--nkeys].aes);
}

/* Replace the keys with those of the file.  An error leaves no keys. */
static void
load_keys(void)
{
	struct stat file;
	KeyLines	lines;
	const char *complaint;
	char	   *content;
	int			length;
	int			line_number;
	bool		refused = false;

	forget_keys();
	generation++;
	if (key_file[0] == '\0')
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("there is no key to encrypt snowflakes with"),
				errhint("Set \"%s\" to a file of keys, and reload the configuration.", SETTING));

	while ((content = read_file(&length, &file)) == NULL)
		wait_a_moment();
	complaint = parse_lines(content, &lines, &line_number);
	explicit_bzero(content, length);
	for (int i = 0; i < lines.count && complaint == NULL && !refused; i++)
	{
		keys[i].number = lines.numbers[i];
		keys[i].aes = snowflake_cipher_aes_make(lines.keys[i], KEY_BYTES * 8);
		if (keys[i].aes == NULL)
			refused = true;
		else
			nkeys++;
	}
	explicit_bzero(&lines, sizeof(lines));

	if (complaint != NULL)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("line %d of the file of \"%s\" is invalid", line_number, SETTING),
				errdetail_internal("%s", complaint));
	if (refused)
	{
		forget_keys();
		elog(ERROR, "OpenSSL has no AES-256");
	}
	if (nkeys == 0)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" has no key", SETTING));
	pfree(content);
	keys_file = file;
}

/*
 * Make sure that the keys are those of the file.  An error leaves none; otherwise
 * there is at least one.
 */
static void
look_at_file(void)
{
	struct stat file;

	if (nkeys == 0 || key_file[0] == '\0' || stat(key_file, &file) != 0 ||
		!(is_same_file(&file, &keys_file) || (S_ISREG(file.st_mode) && is_fresh(&file))))
		load_keys();
	keys_lxid = MyLocalXid;
}

/*
 * Sets *result to the keys, in ascending order of their numbers, and returns how
 * many there are, at least one.  They are valid until the next call, and do not
 * change before the transaction ends; another generation means other keys.  All
 * errors about the file are raised here.
 */
int
snowflake_keys_get(const SnowflakeKey **result, uint32 *result_generation)
{
	if (unlikely(nkeys == 0 || keys_lxid != MyLocalXid))
		look_at_file();
	*result = keys;
	*result_generation = generation;
	return nkeys;
}

/* Define the setting, when the library is loaded. */
void
snowflake_keys_init(void)
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
