/*-------------------------------------------------------------------------
 *
 * node_source_text.c
 *	  What may be said of where the node ID comes from: the values of
 *	  snowflake.node_source.
 *
 * Apart from node_source.c, because the settings need it, and what is done with the
 * value needs the settings.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <stdlib.h>

#include "lease/node_source_text.h"

/* Schemes of URLs, and the kind of coordinator that each means. */
static const struct
{
	const char *scheme;
	const char *kind;
}			schemes[] = {
	{"postgresql", "postgresql"},
	{"postgres", "postgresql"},
	{"etcd", "etcd"},
	{"etcds", "etcd"},
	{"zookeeper", "zookeeper"},
	{"consul", "consul"},
	{"consuls", "consul"},
};

/* The kind of coordinator that a URL names, which its module is named after, or NULL. */
const char *
snowflake_node_source_coordinator(const char *url)
{
	for (size_t i = 0; i < lengthof(schemes); i++)
	{
		size_t		length = strlen(schemes[i].scheme);

		if (strncmp(url, schemes[i].scheme, length) == 0 &&
			strncmp(url + length, "://", 3) == 0)
			return schemes[i].kind;
	}
	return NULL;
}

/* Are these the next characters of a URL, as they are or as their codes? */
static bool
spells(const char *url, const char *word)
{
	for (; *word != '\0'; word++)
	{
		int			c = (unsigned char) *url;

		if (c == '%' && isxdigit((unsigned char) url[1]) && isxdigit((unsigned char) url[2]))
		{
			char		code[3] = {url[1], url[2], '\0'};

			c = (int) strtol(code, NULL, 16);
			url += 2;
		}
		if (c != *word)
			return false;
		url++;
	}
	return true;
}

/*
 * Does a URL have a password?  Settings are shown and logged in many places, so
 * it does not belong there.  As libpq does, take for user and password what is
 * before an "@" that comes before the first slash.
 */
static bool
has_password(const char *url)
{
	static const char *const parameters[] = {
		"password=", "token=", "secret=", "scram_client_key=", "scram_server_key="
	};
	const char *authority = strstr(url, "://") + 3;
	const char *at = memchr(authority, '@', strcspn(authority, "/"));

	if (at != NULL && memchr(authority, ':', at - authority) != NULL)
		return true;
	for (; *url != '\0'; url++)
		for (size_t i = 0; i < lengthof(parameters); i++)
			if (spells(url, parameters[i]))
				return true;
	return false;
}

/*
 * Parse a value of snowflake.node_source.  Returns a complaint if it is none,
 * which does not have the value in it.
 */
const char *
snowflake_node_source_parse(const char *text, SnowflakeNodeSource *source)
{
	if (pg_strcasecmp(text, "setting") == 0)
		*source = NODE_FROM_SETTING;
	else if (pg_strcasecmp(text, "hostname") == 0)
		*source = NODE_FROM_HOSTNAME;
	else if (pg_strcasecmp(text, "address") == 0)
		*source = NODE_FROM_ADDRESS;
	else if (snowflake_node_source_coordinator(text) == NULL)
		return "It is setting, hostname, address, or a URL of a coordinator, such as postgresql://host/database.";
	else if (has_password(text))
		return "The URL has a password, which others could read here. It belongs in a file that only the server can read, named by the parameter passfile.";
	else
		*source = NODE_FROM_LEASE;
	return NULL;
}
