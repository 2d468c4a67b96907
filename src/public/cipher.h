/*-------------------------------------------------------------------------
 *
 * cipher.h
 *	  FF1: encryption of numbers as numbers of the same range.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_CIPHER_H
#define SNOWFLAKE_CIPHER_H

/* OpenSSL's EVP_CIPHER_CTX: AES with a key */
typedef struct evp_cipher_ctx_st SnowflakeAes;

#define SNOWFLAKE_AES_BLOCK		16	/* bytes */

/* A key, a tweak and a range, prepared; aes is the caller's. */
typedef struct SnowflakeFF1
{
	SnowflakeAes *aes;
	uint64		modulus[2];		/* of the upper and the lower half */
	int			number_bytes;	/* b of the standard */
	int			random_bytes;	/* d of the standard */
	uint8		block[SNOWFLAKE_AES_BLOCK]; /* the last block, without the
											 * parts that change */
} SnowflakeFF1;

extern SnowflakeAes *snowflake_cipher_aes_make(const uint8 *key, int bits);
extern void snowflake_cipher_aes_free(SnowflakeAes *aes);
extern bool snowflake_cipher_ff1_prepare(SnowflakeFF1 *ff1, SnowflakeAes *aes,
										 uint32 radix, int digits,
										 const void *tweak, size_t tweak_bytes);
extern bool snowflake_cipher_ff1_crypt(const SnowflakeFF1 *ff1, bool decrypt, uint64 half[2]);

#endif							/* SNOWFLAKE_CIPHER_H */
