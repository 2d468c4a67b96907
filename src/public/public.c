/*-------------------------------------------------------------------------
 *
 * public.c
 *	  Public IDs: encrypted, as text and as UUID.
 *
 * The text is a context, an underscore, and digits of base32: the number of the key,
 * in one digit or two, and the encrypted ID in 13.  The context is the tweak of the
 * encryption, so an ID looks different in each.  Every text can be decrypted, unless it is
 * not a number of 63 bits: encryption hides what an ID tells, but does not prove that the
 * text came from here.
 *
 * A UUID of version 8 has 122 bits to fill.  Its last four are the number of the
 * key, modulo 16; the others are encrypted as one number, the ID followed by 55
 * zero bits.  A UUID that was made up decrypts to so many zero bits with a
 * probability of 2^-55 for each key that is tried, and at most 16 are.
 *
 * This library does not need that of the extension snowflake: the code that the two share is
 * inline in headers.  So neither has to be loaded before the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "fmgr.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/uuid.h"

#include "base/compat.h"
#include "layout/io.h"
#include "public/keys.h"

PG_MODULE_MAGIC_EXT(
					.name = "snowflake_public",
					.version = SNOWFLAKE_VERSION
);

PG_FUNCTION_INFO_V1(snowflake_public);
PG_FUNCTION_INFO_V1(snowflake_private);
PG_FUNCTION_INFO_V1(snowflake_public_uuid);
PG_FUNCTION_INFO_V1(snowflake_private_uuid);

#define CONTEXT_SIZE	17		/* of the longest, with its terminator */

/* Crockford's digits, in lower case */
static const char base32[] = "0123456789abcdefghjkmnpqrstvwxyz";

#define DIGIT_BITS		5
#define ID_DIGITS		13		/* of an encrypted ID */
#define KEY_DIGITS		2		/* of the longest number of a key */
#define ID_BITS			63
#define LOWER_BITS		32		/* of the lower half of an encrypted ID */
#define UUID_BITS		118		/* the ID followed by zero bits */
#define UUID_HALF_BITS	(UUID_BITS / 2)
#define UUID_ZERO_BITS	(UUID_BITS - ID_BITS)
#define UUID_KEY_BITS	4

#define LOW_BITS(n)		((UINT64CONST(1) << (n)) - 1)

/* The prepared cipher of one call in a query. */
typedef struct CipherCache
{
	uint32		generation;		/* of the keys; 0: empty */
	int			key_number;
	int			bits;
	char		context[CONTEXT_SIZE];
	SnowflakeFF1 ff1;
} CipherCache;

/* Is this a context: a lower-case letter, followed by up to 15 such letters and digits? */
static bool
is_context(const char *text, size_t length)
{
	return length < CONTEXT_SIZE && text[0] >= 'a' && text[0] <= 'z' &&
		strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") >= length;
}

static char *
get_context(text *argument)
{
	char	   *context = text_to_cstring(argument);

	if (!is_context(context, strlen(context)))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid context of a public snowflake: \"%s\"", context),
				errdetail("A context consists of lower-case letters and digits, starts with a letter, and has at most %d characters.",
						  CONTEXT_SIZE - 1));
	return context;
}

/*
 * Encrypt or decrypt a number of so many bits, in place, with a key and a context.  The
 * prepared cipher is kept in the call's fn_extra, so a query with a constant context
 * prepares it once.
 */
static void
crypt_number(FunctionCallInfo fcinfo, const SnowflakeKey *key, uint32 generation, int bits,
			 const char *context, bool decrypt, uint64 half[2])
{
	CipherCache *cache = fcinfo->flinfo->fn_extra;

	if (cache == NULL)
		fcinfo->flinfo->fn_extra = cache =
			MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(CipherCache));
	if (cache->generation != generation || cache->key_number != key->number ||
		cache->bits != bits || strcmp(cache->context, context) != 0)
	{
		/* the cache is empty until the new cipher is complete */
		cache->generation = 0;
		if (!snowflake_cipher_ff1_prepare(&cache->ff1, key->aes, 2, bits, context, strlen(context)))
			elog(ERROR, "OpenSSL could not encrypt");
		strlcpy(cache->context, context, CONTEXT_SIZE);
		cache->key_number = key->number;
		cache->bits = bits;
		cache->generation = generation;
	}
	if (!snowflake_cipher_ff1_crypt(&cache->ff1, decrypt, half))
		elog(ERROR, "OpenSSL could not %s", decrypt ? "decrypt" : "encrypt");
}

/* Write a number with so many digits.  Returns their end. */
static char *
write_digits(char *at, uint64 number, int count)
{
	for (int i = count - 1; i >= 0; i--, number >>= DIGIT_BITS)
		at[i] = base32[number & LOW_BITS(DIGIT_BITS)];
	return at + count;
}

/* Encrypts an ID as text, with the newest key. */
Datum
snowflake_public(PG_FUNCTION_ARGS)
{
	uint64		id = snowflake_io_check_sign(PG_GETARG_INT64(0));
	char	   *context = get_context(PG_GETARG_TEXT_PP(1));
	uint64		half[2] = {id >> LOWER_BITS, id & LOW_BITS(LOWER_BITS)};
	char		digits[KEY_DIGITS + ID_DIGITS + 1];
	char	   *end;
	const SnowflakeKeys *keys = snowflake_keys_get();
	const SnowflakeKey *key = &keys->keys[keys->count - 1];

	crypt_number(fcinfo, key, keys->generation, ID_BITS, context, false, half);

	end = write_digits(digits, key->number,
					   key->number > (int) LOW_BITS(DIGIT_BITS) ? 2 : 1);
	end = write_digits(end, half[0] << LOWER_BITS | half[1], ID_DIGITS);
	*end = '\0';
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s_%s", context, digits)));
}

pg_noreturn static void
text_error(const char *input, const char *detail)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			errmsg("invalid public snowflake: \"%s\"", input),
			errdetail_internal("%s", detail));
}

/* Read the digits after a context: sets *key_number, and returns the encrypted ID. */
static uint64
read_digits(const char *input, const char *digits, int *key_number)
{
	int			length = (int) strlen(digits);
	uint64		number = 0;

	if (strspn(digits, base32) < strlen(digits))
		text_error(input, psprintf("The digits of a public snowflake are \"%s\".", base32));
	if (length != ID_DIGITS + 1 && (length != ID_DIGITS + 2 || digits[0] == '0'))
		text_error(input, psprintf("After the context and an underscore, a public snowflake must have %d digits, or %d digits of which the first is not 0.",
								   ID_DIGITS + 1, ID_DIGITS + 2));

	*key_number = 0;
	for (int i = 0; i < length; i++)
	{
		int			digit = (int) (strchr(base32, digits[i]) - base32);

		if (i < length - ID_DIGITS)
			*key_number = *key_number << DIGIT_BITS | digit;
		else if (i == length - ID_DIGITS &&
				 digit > (int) LOW_BITS(ID_BITS - (ID_DIGITS - 1) * DIGIT_BITS))
			ereport(ERROR,
					errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					errmsg("public snowflake \"%s\" is out of range", input),
					errdetail("Its last %d digits are a number of more than %d bits.",
							  ID_DIGITS, ID_BITS));
		else
			number = number << DIGIT_BITS | digit;
	}
	return number;
}

/* Encrypts an ID as a UUID, with the newest key. */
Datum
snowflake_public_uuid(PG_FUNCTION_ARGS)
{
	uint64		id = snowflake_io_check_sign(PG_GETARG_INT64(0));
	char	   *context = get_context(PG_GETARG_TEXT_PP(1));
	uint64		half[2] = {
		id >> (ID_BITS - UUID_HALF_BITS),
		(id & LOW_BITS(ID_BITS - UUID_HALF_BITS)) << UUID_ZERO_BITS
	};
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));
	uint64		word[2];
	const SnowflakeKeys *keys = snowflake_keys_get();
	const SnowflakeKey *key = &keys->keys[keys->count - 1];

	crypt_number(fcinfo, key, keys->generation, UUID_BITS, context, false, half);

	/*
	 * 48 bits, the version, 12 bits; the variant, 62 bits: one of the lower
	 * half is in the first word
	 */
	word[0] = half[0] << 1 | half[1] >> (UUID_HALF_BITS - 1);
	word[0] = pg_hton64((word[0] >> 12) << 16 | UINT64CONST(8) << 12 | (word[0] & LOW_BITS(12)));
	word[1] = pg_hton64(UINT64CONST(2) << 62 |
						(half[1] & LOW_BITS(UUID_HALF_BITS - 1)) << UUID_KEY_BITS |
						(key->number & LOW_BITS(UUID_KEY_BITS)));
	memcpy(uuid->data, word, UUID_LEN);
	PG_RETURN_UUID_P(uuid);
}

/* Returns the ID of a UUID in a context, or raises an error. */
static int64
decrypt_uuid(FunctionCallInfo fcinfo, Datum uuid, const char *context)
{
	uint64		word[2];
	const SnowflakeKeys *keys;
	bool		tried = false;

	memcpy(word, DatumGetUUIDP(uuid)->data, UUID_LEN);
	word[0] = pg_ntoh64(word[0]);
	word[1] = pg_ntoh64(word[1]);
	if ((word[0] >> 12 & LOW_BITS(4)) != 8 || word[1] >> 62 != 2)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("UUID \"%s\" is not that of a snowflake",
					   DatumGetCString(DirectFunctionCall1(uuid_out, uuid))),
				errdetail("It is not of version 8 and variant 10."));
	word[0] = (word[0] >> 16) << 12 | (word[0] & LOW_BITS(12));
	word[1] &= LOW_BITS(62);

	keys = snowflake_keys_get();
	for (int i = keys->count - 1; i >= 0; i--)
	{
		const SnowflakeKey *key = &keys->keys[i];
		uint64		half[2] = {
			word[0] >> 1,
			(word[0] & 1) << (UUID_HALF_BITS - 1) | word[1] >> UUID_KEY_BITS
		};

		if ((key->number & LOW_BITS(UUID_KEY_BITS)) != (word[1] & LOW_BITS(UUID_KEY_BITS)))
			continue;
		tried = true;
		crypt_number(fcinfo, key, keys->generation, UUID_BITS, context, true, half);
		if ((half[1] & LOW_BITS(UUID_ZERO_BITS)) == 0)
			return (int64) (half[0] << (ID_BITS - UUID_HALF_BITS) |
							half[1] >> UUID_ZERO_BITS);
	}
	if (!tried)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("there is no key for the UUID \"%s\"",
					   DatumGetCString(DirectFunctionCall1(uuid_out, uuid))),
				errdetail("No configured key has a number that is %d modulo %d.",
						  (int) (word[1] & LOW_BITS(UUID_KEY_BITS)), 1 << UUID_KEY_BITS));
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("UUID \"%s\" is not that of a snowflake in the context \"%s\"",
				   DatumGetCString(DirectFunctionCall1(uuid_out, uuid)), context),
			errdetail("It is of another context or key, or was made elsewhere."));
}

/* Does a text have the digits of a UUID, and nothing else except for hyphens and braces? */
static bool
is_uuid(const char *text)
{
	int			digits = 0;

	for (; *text != '\0'; text++)
		if (isxdigit((unsigned char) *text))
			digits++;
		else if (strchr("-{}", *text) == NULL)
			return false;
	return digits == 2 * UUID_LEN;
}

/*
 * Returns the ID of a text.  If there is a second argument, the text must be of that
 * context; then it may also be a UUID, since an untyped literal comes here, not to
 * snowflake_private_uuid().
 */
Datum
snowflake_private(PG_FUNCTION_ARGS)
{
	char	   *input = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *underscore = strchr(input, '_');
	char	   *context;
	uint64		number;
	uint64		half[2];
	const SnowflakeKeys *keys;
	const SnowflakeKey *key = NULL;
	int			key_number;

	if (is_uuid(input))
	{
		if (PG_NARGS() == 1)
			ereport(ERROR,
					errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					errmsg("invalid public snowflake: \"%s\"", input),
					errdetail("A UUID does not contain its context."),
					errhint("Use snowflake_private() with the context as second argument."));
		context = get_context(PG_GETARG_TEXT_PP(1));
		PG_RETURN_INT64(decrypt_uuid(fcinfo,
									 DirectFunctionCall1(uuid_in, CStringGetDatum(input)),
									 context));
	}
	if (underscore == NULL || !is_context(input, underscore - input))
		text_error(input, "It does not start with a context and an underscore.");
	context = pnstrdup(input, underscore - input);
	if (PG_NARGS() > 1)
	{
		char	   *wanted = get_context(PG_GETARG_TEXT_PP(1));

		if (strcmp(context, wanted) != 0)
			ereport(ERROR,
					errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("public snowflake \"%s\" is not of the context \"%s\"",
						   input, wanted));
	}
	number = read_digits(input, underscore + 1, &key_number);

	keys = snowflake_keys_get();
	for (int i = 0; i < keys->count; i++)
		if (keys->keys[i].number == key_number)
			key = &keys->keys[i];
	if (key == NULL)
		ereport(ERROR,
				errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("there is no key for the public snowflake \"%s\"", input),
				errdetail("Its key has the number %d.", key_number));

	half[0] = number >> LOWER_BITS;
	half[1] = number & LOW_BITS(LOWER_BITS);
	crypt_number(fcinfo, key, keys->generation, ID_BITS, context, true, half);
	PG_RETURN_INT64((int64) (half[0] << LOWER_BITS | half[1]));
}

/* Returns the ID of a UUID of snowflake_public_uuid(). */
Datum
snowflake_private_uuid(PG_FUNCTION_ARGS)
{
	char	   *context = get_context(PG_GETARG_TEXT_PP(1));

	PG_RETURN_INT64(decrypt_uuid(fcinfo, PG_GETARG_DATUM(0), context));
}
