/*-------------------------------------------------------------------------
 *
 * encode.c
 *	  Snowflakes as short texts, for URLs and the like, and back.
 *
 * Each format writes the ID as a number in its own digits, most significant
 * first.  A format of fixed width is padded with zero digits, and since its
 * digits are in the order of their character codes, its texts sort like the IDs
 * (in the collation "C").
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "base/compat.h"
#include "layout/io.h"

PG_FUNCTION_INFO_V1(snowflake_to_text);
PG_FUNCTION_INFO_V1(snowflake_from_text);

typedef struct Format
{
	const char *name;
	const char *digits;
	size_t		width;			/* of the largest ID */
	bool		fixed;			/* padded to that width? */
	const char *folded;			/* characters that are read as ... */
	const char *into;			/* ... these digits, one for one */
} Format;

static const Format formats[] = {
	/* Crockford, "Base 32": I and L read as 1, O as 0, in either case */
	{"base32", "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 13, true,
	"abcdefghjkmnpqrstvwxyziIlLoO", "ABCDEFGHJKMNPQRSTVWXYZ111100"},
	/* Zooko, "Human-oriented base-32 encoding", of the number */
	{"base32z", "ybndrfg8ejkmcpqxot1uwisza345h769", 13, false, "", ""},
	{"base36", "0123456789abcdefghijklmnopqrstuvwxyz", 13, false,
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"},
	/* Bitcoin, base58.h */
	{"base58", "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", 11, false, "", ""},
	/* Flickr's short URLs */
	{"base58flickr", "123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ", 11, false, "", ""},
	{"base62", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 11, true, "", ""},
	{"hex", "0123456789ABCDEF", 16, true, "abcdef", "ABCDEF"},
};

#define MAX_WIDTH	16

static const Format *
get_format(text *name)
{
	char	   *wanted = text_to_cstring(name);

	for (size_t i = 0; i < lengthof(formats); i++)
	{
		if (strcmp(formats[i].name, wanted) == 0)
			return &formats[i];
	}
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("unknown snowflake format: \"%s\"", wanted),
			errhint("Formats are base32, base32z, base36, base58, base58flickr, base62 and hex."));
}

Datum
snowflake_to_text(PG_FUNCTION_ARGS)
{
	int64		id = snowflake_io_check_sign(PG_GETARG_INT64(0));
	const Format *format = get_format(PG_GETARG_TEXT_PP(1));
	int64		base = strlen(format->digits);
	char		buf[MAX_WIDTH];
	char	   *start = buf + MAX_WIDTH;

	do
	{
		*--start = format->digits[id % base];
		id /= base;
	} while (id > 0);

	while (format->fixed && start > buf + MAX_WIDTH - format->width)
		*--start = format->digits[0];

	PG_RETURN_TEXT_P(cstring_to_text_with_len(start, buf + MAX_WIDTH - start));
}

/* The value of a digit, or -1. */
static int
digit_value(const Format *format, char c)
{
	const char *folded = strchr(format->folded, c);
	const char *digit;

	if (folded != NULL)
		c = format->into[folded - format->folded];
	digit = strchr(format->digits, c);
	return digit == NULL ? -1 : (int) (digit - format->digits);
}

Datum
snowflake_from_text(PG_FUNCTION_ARGS)
{
	char	   *input = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const Format *format = get_format(PG_GETARG_TEXT_PP(1));
	size_t		length = strlen(input);
	int64		id = 0;
	bool		overflow = false;

	for (const char *p = input; *p != '\0'; p++)
	{
		int			digit = digit_value(format, *p);

		if (digit < 0)
			ereport(ERROR,
					errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					errmsg("invalid snowflake in format %s: \"%s\"",
						   format->name, input),
					errdetail("The digits of this format are \"%s\".", format->digits));
		overflow |= pg_mul_s64_overflow(id, strlen(format->digits), &id) ||
			pg_add_s64_overflow(id, digit, &id);
	}
	if (length == 0 || length > format->width ||
		(format->fixed && length < format->width))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				errmsg("invalid snowflake in format %s: \"%s\"",
					   format->name, input),
				format->fixed ?
				errdetail("It has %zu digits, not %zu.", length, format->width) :
				errdetail("It has %zu digits, not 1 to %zu.", length, format->width));

	if (overflow)
		ereport(ERROR,
				errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("snowflake \"%s\" in format %s is out of range", input, format->name),
				SNOWFLAKE_IO_RANGE_DETAIL);
	PG_RETURN_INT64(id);
}
