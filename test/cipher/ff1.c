/*-------------------------------------------------------------------------
 *
 * ff1.c
 *	  Tests of src/public/cipher.c without a server: what 700_cipher.pl builds and runs.
 *
 * Writes TAP.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <openssl/evp.h>

#include "public/cipher.h"

/* the C library's own, since nothing of the server is linked */
#undef printf
#undef snprintf

#define ID_BITS		63
#define IDS			(1 << 16)

typedef struct Sample
{
	int			key_bits;
	uint32		radix;
	const char *tweak;
	const char *plain;
	const char *encrypted;
} Sample;

/* The samples of AES-192 and AES-256 have longer keys with the same beginning. */
static const uint8 sample_key[32] = {
	0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6,
	0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c,
	0xef, 0x43, 0x59, 0xd8, 0xd5, 0x80, 0xaa, 0x4f,
	0x7f, 0x03, 0x6d, 0x6f, 0x04, 0xfc, 0x6a, 0x94
};

/* NIST, "Block Cipher Modes of Operation, FF1 Method": samples 1 to 9 */
static const Sample samples[] = {
	{128, 10, "", "0123456789", "2433477484"},
	{128, 10, "9876543210", "0123456789", "6124200773"},
	{128, 36, "7777pqrs777", "0123456789abcdefghi", "a9tv40mll9kdu509eum"},
	{192, 10, "", "0123456789", "2830668132"},
	{192, 10, "9876543210", "0123456789", "2496655549"},
	{192, 36, "7777pqrs777", "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"},
	{256, 10, "", "0123456789", "6657667009"},
	{256, 10, "9876543210", "0123456789", "1001623463"},
	{256, 36, "7777pqrs777", "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"},
};

static const char tweak[] = "a tweak that is longer than two blocks";
static int	tests = 0;

static void
ok(bool success, const char *name)
{
	printf("%sok %d - %s\n", success ? "" : "not ", ++tests, name);
}

/* The number that digits write. */
static uint64
number(const char *digits, int count, uint32 radix)
{
	uint64		result = 0;

	for (int i = 0; i < count; i++)
		result = result * radix +
			(digits[i] <= '9' ? digits[i] - '0' : digits[i] - 'a' + 10);
	return result;
}

static void
halves_of(const char *digits, uint32 radix, uint64 half[2])
{
	int			count = (int) strlen(digits);

	half[0] = number(digits, count / 2, radix);
	half[1] = number(digits + count / 2, count - count / 2, radix);
}

static void
test_sample(int i)
{
	const Sample *sample = &samples[i];
	SnowflakeAes *aes = snowflake_cipher_aes_make(sample_key, sample->key_bits);
	SnowflakeFF1 ff1;
	uint64		plain[2],
				wanted[2],
				half[2];
	char		name[64];
	bool		encrypts,
				decrypts;

	halves_of(sample->plain, sample->radix, plain);
	halves_of(sample->encrypted, sample->radix, wanted);
	memcpy(half, plain, sizeof(half));
	encrypts = aes != NULL &&
		snowflake_cipher_ff1_prepare(&ff1, aes, sample->radix, (int) strlen(sample->plain),
							  sample->tweak, strlen(sample->tweak)) &&
		snowflake_cipher_ff1_crypt(&ff1, false, half) &&
		memcmp(half, wanted, sizeof(half)) == 0;
	decrypts = encrypts && snowflake_cipher_ff1_crypt(&ff1, true, half) &&
		memcmp(half, plain, sizeof(half)) == 0;
	snprintf(name, sizeof(name), "NIST's FF1 sample %d", i + 1);
	ok(encrypts && decrypts, name);
	snowflake_cipher_aes_free(aes);
}

/*
 * Encrypt in radix 2 by the letter of the standard, algorithm 7: all of P and Q is put
 * together in each round.  What is prepared has to come to the same.
 */
static void
encrypt_by_the_letter(SnowflakeAes *aes, int digits, int tweak_bytes, uint64 half[2])
{
	int			upper_digits = digits / 2;
	int			number_bytes = (digits - upper_digits + 7) / 8;
	int			random_bytes = (number_bytes + 3) / 4 * 4 + 4;
	int			zeros = (16 - (tweak_bytes + number_bytes + 1) % 16) % 16;

	for (int round = 0; round < 10; round++)
	{
		uint8		text[128] = {1, 2, 1, 0, 0, 2, 10, upper_digits, 0, 0, 0, digits, 0, 0, 0, tweak_bytes};
		uint8	   *q = text + 16;
		uint8		chain[16] = {0};
		uint64		added = 0;
		int			length;

		memcpy(q, tweak, tweak_bytes);
		q += tweak_bytes + zeros;
		*q++ = round;
		for (int i = 0; i < number_bytes; i++)
			*q++ = half[1] >> 8 * (number_bytes - 1 - i);
		for (uint8 *block = text; block < q; block += 16)
		{
			for (int i = 0; i < 16; i++)
				chain[i] ^= block[i];
			if (EVP_EncryptUpdate(aes, chain, &length, chain, 16) != 1)
				abort();
		}
		for (int i = 0; i < random_bytes; i++)
			added = added << 8 | chain[i];
		added += half[0];
		half[0] = half[1];
		half[1] = added & ((UINT64CONST(1) << (round % 2 == 0 ? upper_digits : digits - upper_digits)) - 1);
	}
}

/* A number is decrypted to itself, so no other one is encrypted to the same. */
static bool
comes_back(const SnowflakeFF1 *ff1, uint64 n)
{
	uint64		half[2] = {n / ff1->modulus[1], n % ff1->modulus[1]};

	return snowflake_cipher_ff1_crypt(ff1, false, half) &&
		half[0] < ff1->modulus[0] && half[1] < ff1->modulus[1] &&
		snowflake_cipher_ff1_crypt(ff1, true, half) &&
		half[0] * ff1->modulus[1] + half[1] == n;
}

/*
 * Under a tweak of each length around the block's ends, numbers of some bits come back, all of them if
 * these are few, and one is encrypted to what the standard says.
 */
static void
test_tweaks(int bits)
{
	SnowflakeAes *aes = snowflake_cipher_aes_make(sample_key, 256);
	bool		success = true;
	char		name[64];

	for (size_t tweak_bytes = 0; tweak_bytes <= strlen(tweak); tweak_bytes++)
	{
		SnowflakeFF1 ff1;
		uint64		half[2] = {12345, 67890};
		uint64		wanted[2];

		success &= snowflake_cipher_ff1_prepare(&ff1, aes, 2, bits, tweak, tweak_bytes);
		for (uint64 n = 0; n < 1 << Min(bits, 12); n++)
			success &= comes_back(&ff1, n);
		for (int i = 0; i < 2; i++)
			wanted[i] = half[i] %= ff1.modulus[i];
		encrypt_by_the_letter(aes, bits, (int) tweak_bytes, wanted);
		success &= snowflake_cipher_ff1_crypt(&ff1, false, half) &&
			memcmp(half, wanted, sizeof(half)) == 0;
	}
	snprintf(name, sizeof(name), "tweaks of %d bits", bits);
	ok(success, name);
	snowflake_cipher_aes_free(aes);
}

/* The smallest, those at the middle, the largest, and others from a generator of our own. */
static void
test_ids(const SnowflakeFF1 *ff1)
{
	uint64		state = 1;
	bool		success = true;

	for (uint64 i = 0; i < IDS; i++)
	{
		uint64		mixed = (state += UINT64CONST(0x9e3779b97f4a7c15));

		mixed = (mixed ^ mixed >> 30) * UINT64CONST(0xbf58476d1ce4e5b9);
		success &= comes_back(ff1, i) && comes_back(ff1, (UINT64CONST(1) << 62) + i - IDS / 2) &&
			comes_back(ff1, PG_INT64_MAX - i) && comes_back(ff1, mixed >> 1);
	}
	ok(success, "IDs come back");
}

int
main(void)
{
	SnowflakeAes *aes = snowflake_cipher_aes_make(sample_key, 256);
	SnowflakeFF1 ff1;

	for (int i = 0; i < (int) lengthof(samples); i++)
		test_sample(i);
	test_tweaks(9);
	test_tweaks(12);
	test_tweaks(ID_BITS);
	test_tweaks(122);

	ok(snowflake_cipher_ff1_prepare(&ff1, aes, 2, ID_BITS, "ord", 3), "a context for IDs");
	test_ids(&ff1);

	snowflake_cipher_aes_free(aes);
	printf("1..%d\n", tests);
	return 0;
}
