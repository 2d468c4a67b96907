/*-------------------------------------------------------------------------
 *
 * url.h
 *	  The URL of a coordinator that is not PostgreSQL:
 *
 *	  scheme://[user@]host[:port][,host[:port]...][/path][?name=value[&...]]
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_URL_H
#define SNOWFLAKE_URL_H

#include "nodes/pg_list.h"

#include "base/compat.h"

typedef struct SnowflakeUrl
{
	char	   *scheme;
	char	   *user;			/* NULL if there is none */
	List	   *hosts;			/* of "host:port" */
	List	   *addresses;		/* of each host, separated by commas, once
								 * looked up */
	char	   *path;			/* without slashes around it */
	List	   *parameters;		/* of "name=value" */
} SnowflakeUrl;

extern SnowflakeUrl *snowflake_url_parse(const char *text, int default_port,
										 const char *const *parameters);
pg_noreturn extern void snowflake_url_malformed(const char *what);
extern void snowflake_url_resolve(SnowflakeUrl *url, int64 *deadline_usec);
extern const char *snowflake_url_parameter(const SnowflakeUrl *url, const char *name);
extern char *snowflake_url_secret(const SnowflakeUrl *url);

#endif							/* SNOWFLAKE_URL_H */
