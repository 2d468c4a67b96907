/*-------------------------------------------------------------------------
 *
 * resolve.h
 *	  Addresses of hosts, without waiting for them longer than one wants.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_RESOLVE_H
#define SNOWFLAKE_RESOLVE_H

extern char *snowflake_resolve_host(const char *host, int64 until_usec,
									const char **error);

#endif							/* SNOWFLAKE_RESOLVE_H */
