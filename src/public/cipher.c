/*-------------------------------------------------------------------------
 *
 * cipher.c
 *	  FF1: encryption of numbers as numbers of the same range.
 *
 * NIST Special Publication 800-38G: a Feistel network of ten rounds over the upper
 * and the lower half of a number's digits.  A round computes a CBC-MAC with AES of
 * one half, the round's number and the tweak, and adds it to the other half,
 * modulo its range.  Letters in comments are those of the standard.
 *
 * Everything that the MAC reads before its last block, and the head of that block,
 * depend only on the range and the tweak.  So they are prepared, and a round costs
 * one AES block.  The radix is an argument only for NIST's samples, which the test runs.
 * A half is a number below 2^56, or below a power of two up to 2^63.
 *
 * Nothing here needs the server, and nothing raises an error: if OpenSSL refuses,
 * the result is false or NULL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <openssl/evp.h>

#include "public/cipher.h"

#define ROUNDS	10

/* Returns AES with a key of 128, 192 or 256 bits, which the caller frees, or NULL. */
SnowflakeAes *
snowflake_cipher_aes_make(const uint8 *key, int bits)
{
	const EVP_CIPHER *cipher = bits == 128 ? EVP_aes_128_ecb() :
	bits == 192 ? EVP_aes_192_ecb() : EVP_aes_256_ecb();
	EVP_CIPHER_CTX *aes = EVP_CIPHER_CTX_new();

	if (aes != NULL &&
		EVP_EncryptInit_ex(aes, cipher, NULL, key, NULL) == 1 &&
		EVP_CIPHER_CTX_set_padding(aes, 0) == 1)
		return aes;
	EVP_CIPHER_CTX_free(aes);
	return NULL;
}

/* Free AES, and wipe its key.  Does nothing for NULL. */
void
snowflake_cipher_aes_free(SnowflakeAes *aes)
{
	EVP_CIPHER_CTX_free(aes);
}

static inline bool
encrypt_block(SnowflakeAes *aes, uint8 *block)
{
	int			length;

	return EVP_EncryptUpdate(aes, block, &length, block, SNOWFLAKE_AES_BLOCK) == 1 &&
		length == SNOWFLAKE_AES_BLOCK;
}

/*
 * Prepare encryption of numbers of so many digits, at most 255, with a tweak.  Returns false
 * if OpenSSL refuses.
 */
bool
snowflake_cipher_ff1_prepare(SnowflakeFF1 *ff1, SnowflakeAes *aes, uint32 radix, int digits,
							 const void *tweak, size_t tweak_bytes)
{
	int			upper_digits = digits / 2;
	int			tail;
	const uint8 *from = tweak;

	ff1->aes = aes;
	ff1->modulus[0] = ff1->modulus[1] = 1;
	for (int i = 0; i < digits; i++)
		ff1->modulus[i >= upper_digits] *= radix;

	ff1->number_bytes = 0;
	for (uint64 rest = ff1->modulus[1] - 1; rest > 0; rest >>= 8)
		ff1->number_bytes++;
	ff1->random_bytes = (ff1->number_bytes + 3) / 4 * 4 + 4;

	/* P, the first block */
	memset(ff1->block, 0, SNOWFLAKE_AES_BLOCK);
	ff1->block[0] = 1;
	ff1->block[1] = 2;
	ff1->block[2] = 1;
	ff1->block[3] = (uint8) (radix >> 16);
	ff1->block[4] = (uint8) (radix >> 8);
	ff1->block[5] = (uint8) radix;
	ff1->block[6] = ROUNDS;
	ff1->block[7] = (uint8) upper_digits;
	ff1->block[11] = (uint8) digits;
	for (int i = 0; i < 4; i++)
		ff1->block[12 + i] = (uint8) (tweak_bytes >> (24 - 8 * i));
	if (!encrypt_block(aes, ff1->block))
		return false;

	/*
	 * Q: the tweak, then zeros, then the round and the number, which end a
	 * block
	 */
	tail = SNOWFLAKE_AES_BLOCK - 1 - ff1->number_bytes;
	for (size_t i = 0; i < tweak_bytes; i++)
	{
		size_t		at = i % SNOWFLAKE_AES_BLOCK;

		ff1->block[at] ^= from[i];
		if (at == SNOWFLAKE_AES_BLOCK - 1 && !encrypt_block(aes, ff1->block))
			return false;
	}
	return tweak_bytes % SNOWFLAKE_AES_BLOCK <= (size_t) tail || encrypt_block(aes, ff1->block);
}

/* Computes what a round adds to a half with this modulus, from the other half: the standard's y. */
static inline bool
round_number(const SnowflakeFF1 *ff1, int round, uint64 other, uint64 modulus,
			 uint64 *result)
{
	uint8		block[SNOWFLAKE_AES_BLOCK];
	uint64		number = 0;

	memcpy(block, ff1->block, SNOWFLAKE_AES_BLOCK);
	block[SNOWFLAKE_AES_BLOCK - 1 - ff1->number_bytes] ^= (uint8) round;
	for (int i = 1; i <= ff1->number_bytes; i++, other >>= 8)
		block[SNOWFLAKE_AES_BLOCK - i] ^= (uint8) other;
	if (!encrypt_block(ff1->aes, block))
		return false;

	/* if the modulus is a power of two, bits that leave the word do not count */
	for (int i = 0; i < ff1->random_bytes; i++)
	{
		number = number << 8 | block[i];
		if (number >= modulus)
			number %= modulus;
	}
	*result = number;
	return true;
}

/*
 * Encrypt or decrypt a number in place: its upper and its lower half, each below its modulus.
 * Returns false if OpenSSL refuses.
 */
bool
snowflake_cipher_ff1_crypt(const SnowflakeFF1 *ff1, bool decrypt, uint64 half[2])
{
	/* the half that a round changes, before it becomes the other one */
	int			changed = decrypt ? 1 : 0;

	for (int i = 0; i < ROUNDS; i++)
	{
		int			round = decrypt ? ROUNDS - 1 - i : i;
		uint64		modulus = ff1->modulus[round % 2];
		uint64		added;

		if (!round_number(ff1, round, half[1 - changed], modulus, &added))
			return false;
		added = half[changed] + (decrypt ? modulus - added : added);
		half[changed] = half[1 - changed];
		half[1 - changed] = added >= modulus ? added - modulus : added;
	}
	return true;
}
