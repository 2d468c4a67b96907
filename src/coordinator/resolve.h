/*-------------------------------------------------------------------------
 *
 * resolve.h
 *	  Addresses of hosts, looked up within a time limit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_RESOLVE_H
#define SNOWFLAKE_RESOLVE_H

extern char *snowflake_resolve_host(const char *host, int64 until_usec,
									const char **error);

#endif							/* SNOWFLAKE_RESOLVE_H */
