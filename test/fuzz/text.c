/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Fuzzer of the text decoders: the type's input, and snowflake_from_text() in
 *	  each of its formats.  $FORMAT says which: "decimal", or a format's name.
 *
 * What is accepted must be the number that the digits say, by an arithmetic
 * that cannot overflow, and must come back from its own encoding.  What is
 * refused as too large must be.
 *
 *-------------------------------------------------------------------------
 */
#include "server.h"

#include "utils/builtins.h"

extern Datum snowflake_in(PG_FUNCTION_ARGS);
extern Datum snowflake_from_text(PG_FUNCTION_ARGS);
extern Datum snowflake_to_text(PG_FUNCTION_ARGS);

static const char *format;
static bool decimal;

/* Digits by value, and how many there are: asked from the encoder. */
static char digits[128];
static int	base;
static bool fixed;

static bool
decode(const char *string, int64 *id)
{
	Datum		args[2];
	Datum		result = (Datum) 0;
	bool		ok;

	if (decimal)
	{
		args[0] = CStringGetDatum(string);
		ok = fuzz_call(snowflake_in, 1, args, &result);
	}
	else
	{
		args[0] = PointerGetDatum(cstring_to_text_with_len(string, strlen(string)));
		args[1] = PointerGetDatum(cstring_to_text_with_len(format, strlen(format)));
		ok = fuzz_call(snowflake_from_text, 2, args, &result);
	}
	*id = DatumGetInt64(result);
	return ok;
}

static char *
encode(int64 id)
{
	Datum		args[2];
	Datum		result;

	if (decimal)
		return psprintf(INT64_FORMAT, id);
	args[0] = Int64GetDatum(id);
	args[1] = PointerGetDatum(cstring_to_text_with_len(format, strlen(format)));
	REQUIRE(fuzz_call(snowflake_to_text, 2, args, &result));
	return text_to_cstring((text *) DatumGetPointer(result));
}

static char
last_char(const char *string)
{
	return string[strlen(string) - 1];
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	format = getenv("FORMAT");
	if (format == NULL)
		format = "decimal";
	decimal = strcmp(format, "decimal") == 0;

	/* the zero comes back when the digits have run out */
	do
	{
		digits[base] = last_char(encode(base));
		base++;
	} while (last_char(encode(base)) != digits[0]);
	fixed = strlen(encode(0)) > 1;
	fuzz_reset_memory();
	return 0;
}

/*
 * The number that a text's digits say, in 128 bits, or -1 if it has others.
 * Which characters are other spellings of a digit is asked from the decoder,
 * one at a time.
 */
static __int128
value_of(const char *string)
{
	__int128	value = 0;
	char	   *one = encode(0);

	for (const char *c = string; *c != '\0'; c++)
	{
		int64		digit;

		one[strlen(one) - 1] = *c;
		if (!decode(one, &digit))
			return -1;
		REQUIRE(digit >= 0 && digit < base);
		value = value * base + digit;
		if (value > (__int128) 1 << 100)
			value = (__int128) 1 << 100;
	}
	return value;
}

static void
check_round_trip(int64 id)
{
	char	   *text = encode(id);
	int64		back;

	REQUIRE(decode(text, &back));
	REQUIRE(back == id);
	REQUIRE(strcmp(encode(back), text) == 0);
	if (fixed)
	{
		int64		other = (int64) (fuzz_random() >> 1);

		/* texts sort like IDs */
		REQUIRE((strcmp(text, encode(other)) < 0) == (id < other));
	}
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	char	   *string = fuzz_string(data, size);
	size_t		length = strlen(string);
	int64		id;

	fuzz_seed(data, size);
	if (decode(string, &id))
	{
		REQUIRE(id >= 0);
		REQUIRE(length > 0);
		REQUIRE(value_of(string) == id);
		REQUIRE(!fixed || length == strlen(encode(0)));
		check_round_trip(id);
	}
	else if (fuzz_sqlstate == ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE)
		REQUIRE(value_of(decimal && string[0] == '-' ? string + 1 : string) > PG_INT64_MAX ||
				(decimal && string[0] == '-'));
	else
	{
		REQUIRE(fuzz_sqlstate == ERRCODE_INVALID_TEXT_REPRESENTATION);

		/* not a number at all, or not as many digits as the format has */
		REQUIRE(length == 0 || value_of(string) < 0 ||
				(fixed && length < strlen(encode(0))) ||
				(!decimal && length > strlen(encode(PG_INT64_MAX))));
	}
	check_round_trip((int64) (fuzz_random() >> (1 + fuzz_random() % 63)));
	fuzz_reset_memory();
	return 0;
}
