/*-------------------------------------------------------------------------
 *
 * keys.h
 *	  The keys that encrypt public IDs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEYS_H
#define SNOWFLAKE_KEYS_H

#include "public/cipher.h"

/*
 * Numbers of keys fit two digits of base32.  A UUID only has room for a number
 * modulo 16, so up to as many keys as there are may have to be tried for one.
 */
#define SNOWFLAKE_MAX_KEY_NUMBER	1023
#define SNOWFLAKE_MAX_KEYS			16

typedef struct SnowflakeKey
{
	int			number;
	SnowflakeAes *aes;
} SnowflakeKey;

/* In ascending order of their numbers; another generation means other keys. */
typedef struct SnowflakeKeys
{
	SnowflakeKey keys[SNOWFLAKE_MAX_KEYS];
	int			count;
	uint32		generation;
} SnowflakeKeys;

extern const SnowflakeKeys *snowflake_keys_get(void);

#endif							/* SNOWFLAKE_KEYS_H */
