/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  The keys that encrypt IDs for the outside, from a file.
 *
 * A line of the file of snowflake.public_key_file is a number and 256 bits as
 * hexadecimal digits; lines that are empty or start with # do not count.
 *
 * Each process reads the file when it first needs a key, and again after a reload
 * of the configuration.  So keys are never in shared memory, in a setting, in SQL
 * or in the log.  What the file says is not in an error either: that has the
 * number of the line.  Nor is its path, which the setting shows to those who may
 * see it.
 *
 * A file that is refused is an error for whoever needs a key, also after a reload
 * when a key was known before: otherwise sessions would differ in what they do.  It is
 * read again until it is right.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "public/keys.h"

#ifdef SNOWFLAKE_OPENSSL

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"
#include "utils/timestamp.h"

#include "base/settings.h"

#define KEY_BYTES		32
#define MAX_FILE_BYTES	16384

/* What errors name, in place of the path */
#define SETTING			"snowflake.public_key_file"

/* What lines say. */
typedef struct KeyLines
{
	int			count;
	int			numbers[SNOWFLAKE_MAX_KEYS];
	uint8		keys[SNOWFLAKE_MAX_KEYS][KEY_BYTES];
} KeyLines;

/* Those of this process, in ascending order of their numbers. */
static SnowflakeKey keys[SNOWFLAKE_MAX_KEYS];
static int	nkeys = 0;
static TimestampTz keys_of_reload = 0;
static uint32 generation = 0;

/* Refuse a file that others can read, or could have written. */
static void
check_file(int fd)
{
	struct stat file;

	if (fstat(fd, &file) != 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not stat the file of \"%s\": %m", SETTING));
	if (!S_ISREG(file.st_mode))
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" is not a regular file", SETTING));

	/* as the server does with its private key for SSL */
	if (file.st_uid != geteuid() && file.st_uid != 0)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" belongs to another user", SETTING),
				errdetail("It must be owned by the user that runs the server, or by root."));
	if (file.st_mode & (file.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO :
						S_IRWXG | S_IRWXO))
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the file of \"%s\" has group or world access", SETTING),
				errdetail("It must have permissions u=rw (0600) or less if it is owned by the user that runs the server, or u=rw,g=r (0640) or less if it is owned by root."));
}

/* Read the file into a new string, which has secrets; sets its length. */
static char *
read_file(int *file_bytes)
{
	char	   *content;
	int			length = 0;
	int			bytes;
	int			fd;

	/* a pipe is refused, and not waited for */
	fd = OpenTransientFile(snowflake_public_key_file, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not open the file of \"%s\": %m", SETTING));
	check_file(fd);

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
	if (CloseTransientFile(fd) != 0)
	{
		explicit_bzero(content, length);
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not close the file of \"%s\": %m", SETTING));
	}

	/* what comes after a zero byte must not be lost in silence */
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

/* Read a line that is no comment.  False if it is not a number and a key. */
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
 * Read the lines of a file, which are overwritten, in ascending order of their
 * numbers.  NULL is success; otherwise what is wrong with the line *line_number.
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
	keys_of_reload = 0;
}

/* Read the file in place of what is known.  An error leaves no keys. */
static void
load_keys(void)
{
	KeyLines	lines;
	const char *complaint;
	char	   *content;
	int			length;
	int			line_number;
	bool		refused = false;

	forget_keys();
	generation++;
	if (snowflake_public_key_file == NULL || snowflake_public_key_file[0] == '\0')
		ereport(ERROR,
				errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("there is no key to encrypt snowflakes with"),
				errhint("Set \"%s\" to a file of keys, and reload the configuration.", SETTING));

	content = read_file(&length);
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
				errmsg("line %d of the file of \"%s\" is wrong", line_number, SETTING),
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
	keys_of_reload = PgReloadTime;
}

/*
 * The keys, in ascending order of their numbers; returns how many there are, at
 * least one.  They are there until the next call; another generation means others.
 * All errors of the file are raised here.
 */
int
snowflake_keys_get(const SnowflakeKey **result, uint32 *result_generation)
{
	if (unlikely(nkeys == 0 || keys_of_reload != PgReloadTime))
		load_keys();
	*result = keys;
	*result_generation = generation;
	return nkeys;
}

#endif							/* SNOWFLAKE_OPENSSL */
