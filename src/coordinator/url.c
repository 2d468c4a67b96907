/*-------------------------------------------------------------------------
 *
 * url.c
 *	  The URL of a coordinator that is not PostgreSQL, and the addresses of its hosts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/ip.h"
#include "lib/stringinfo.h"
#include "libpq/pqcomm.h"
#include "miscadmin.h"
#include "storage/fd.h"

#include "base/clock.h"
#include "base/compat.h"
#include "coordinator/url.h"

#define SECRET_SIZE		4096	/* of the longest password or token */

/* Raise the error of a URL that cannot be used.  "what" is the detail, a sentence. */
void
snowflake_url_malformed(const char *what)
{
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid value for parameter \"%s\"", "snowflake.node_source"),
			errdetail_internal("%s", what),
			errhint("An example is etcd://host:2379,host2:2379/snowflake."));
}

/* Returns part of a text with its percent-encoded bytes decoded. */
static char *
decode(const char *text, size_t length)
{
	char	   *decoded = palloc(length + 1);
	size_t		size = 0;

	for (size_t i = 0; i < length; i++)
	{
		if (text[i] == '%')
		{
			char		hex[3] = {0};

			strlcpy(hex, text + i + 1, Min(sizeof(hex), length - i));
			decoded[size] = (char) strtol(hex, NULL, 16);
			if (strspn(hex, "0123456789abcdefABCDEF") != 2 || decoded[size++] == '\0')
				snowflake_url_malformed("A percent sign must be followed by two hexadecimal digits.");
			i += 2;
		}
		else
			decoded[size++] = text[i];
	}
	decoded[size] = '\0';
	return decoded;
}

/* Parse a URL whose scheme was checked already, and which may have these parameters, up to NULL. */
SnowflakeUrl *
snowflake_url_parse(const char *text, int default_port, const char *const *parameters)
{
	SnowflakeUrl *url = palloc0(sizeof(SnowflakeUrl));
	const char *authority = strstr(text, "://") + 3;
	size_t		length = strcspn(authority, "/?");
	const char *rest = authority + length;
	const char *at = memchr(authority, '@', length);
	const char *path_end;

	url->scheme = pnstrdup(text, authority - 3 - text);
	if (at != NULL)
	{
		url->user = decode(authority, at - authority);
		authority = at + 1;
	}
	for (;;)
	{
		size_t		host_length = strcspn(authority, ",/?");
		const char *bracket = memchr(authority, ']', host_length);
		const char *from = bracket != NULL ? bracket : authority;

		if (host_length == 0)
			snowflake_url_malformed("A host is missing.");
		url->hosts = lappend(url->hosts,
							 memchr(from, ':', authority + host_length - from) != NULL ?
							 pnstrdup(authority, host_length) :
							 psprintf("%.*s:%d", (int) host_length, authority,
									  default_port));
		authority += host_length;
		if (*authority != ',')
			break;
		authority++;
	}

	path_end = rest + strcspn(rest, "?");
	rest += strspn(rest, "/");
	if (rest < path_end)
	{
		while (path_end[-1] == '/')
			path_end--;
		url->path = decode(rest, path_end - rest);
	}
	else
		url->path = pstrdup("snowflake");

	rest = path_end + strcspn(path_end, "?");
	while (*rest != '\0')
	{
		size_t		name_length = strcspn(++rest, "=");
		size_t		parameter_length = strcspn(rest, "&");
		int			i;

		for (i = 0; parameters[i] != NULL; i++)
			if (strlen(parameters[i]) == name_length && name_length < parameter_length &&
				strncmp(parameters[i], rest, name_length) == 0)
				break;
		if (parameters[i] == NULL)
			snowflake_url_malformed("The URL has a parameter that this kind of coordinator does not support.");
		url->parameters = lappend(url->parameters, decode(rest, parameter_length));
		rest += parameter_length;
	}
	return url;
}

/* Returns the addresses of a host, separated by commas, or NULL; then *error says why. */
static char *
look_up(const char *host, const char **error)
{
	const char *colon = strrchr(host, ':');
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char		address[NI_MAXHOST];
	StringInfoData list;
	int			failure = pg_getaddrinfo_all(host[0] == '[' ?
											 pnstrdup(host + 1, colon - host - 2) :
											 pnstrdup(host, colon - host),
											 NULL, &hints, &found);

	initStringInfo(&list);
	for (struct addrinfo *each = found; each != NULL; each = each->ai_next)
		if (getnameinfo(each->ai_addr, each->ai_addrlen, address, sizeof(address),
						NULL, 0, NI_NUMERICHOST) == 0)
			appendStringInfo(&list, "%s%s", list.len == 0 ? "" : ",", address);
	if (found != NULL)
		pg_freeaddrinfo_all(hints.ai_family, found);
	*error = failure != 0 ? gai_strerror(failure) : "it has no address";
	return list.len == 0 ? NULL : list.data;
}

/*
 * Look up the hosts of a URL.  Hosts that have no address are dropped from it.  Raises
 * an error if none is left.
 *
 * The system's resolver cannot be interrupted.  So the deadline is moved by its time, or one
 * that always takes longer than an attempt would be useless.  It is called here, in the only
 * thread: libcurl would start one, which would get the server's signals and end no sooner; and
 * the ZooKeeper client would call it whenever it connects.
 */
void
snowflake_url_resolve(SnowflakeUrl *url, int64 *deadline_usec)
{
	int64		began_usec = snowflake_clock_monotonic_usec();
	List	   *hosts = NIL;
	const char *missing = NULL;
	const char *error = NULL;
	ListCell   *cell;

	foreach(cell, url->hosts)
	{
		char	   *addresses = look_up(lfirst(cell), &error);

		CHECK_FOR_INTERRUPTS();
		if (addresses == NULL)
		{
			missing = lfirst(cell);
			continue;
		}
		hosts = lappend(hosts, lfirst(cell));
		url->addresses = lappend(url->addresses, addresses);
	}
	if (hosts == NIL)
		ereport(ERROR,
				errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("could not use the coordinator: host \"%s\": %s", missing, error));
	url->hosts = hosts;
	*deadline_usec += snowflake_clock_monotonic_usec() - began_usec;
}

/* Returns the value of a parameter, or NULL. */
const char *
snowflake_url_parameter(const SnowflakeUrl *url, const char *name)
{
	size_t		length = strlen(name);
	ListCell   *cell;

	foreach(cell, url->parameters)
	{
		const char *parameter = lfirst(cell);

		if (strncmp(parameter, name, length) == 0 && parameter[length] == '=')
			return parameter + length + 1;
	}
	return NULL;
}

/*
 * Returns the password or token, which is the first line of the file that the parameter
 * "passfile" names, or NULL if there is no such parameter.  As with libpq, others must not be
 * able to read the file.
 */
char *
snowflake_url_secret(const SnowflakeUrl *url)
{
	const char *path = snowflake_url_parameter(url, "passfile");
	char		secret[SECRET_SIZE] = "";
	struct stat attributes;
	bool		is_read;
	int			save_errno;
	int			fd;

	if (path == NULL)
		return NULL;

	/* do not wait for a pipe, which is refused below */
	fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not open file \"%s\": %m", path));
	is_read = fstat(fd, &attributes) == 0 &&
		(!S_ISREG(attributes.st_mode) || read(fd, secret, sizeof(secret) - 1) >= 0);
	save_errno = errno;
	CloseTransientFile(fd);		/* the lessee has no transaction that would
								 * close it */
	errno = save_errno;
	if (!is_read)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not read file \"%s\": %m", path));
	if (!S_ISREG(attributes.st_mode))
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("file \"%s\" is not a regular file", path));
	if ((attributes.st_mode & (S_IRWXG | S_IRWXO)) != 0)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("file \"%s\" has group or world access", path),
				errdetail("It must have permissions u=rw (0600) or less."));
	secret[strcspn(secret, "\r\n")] = '\0';
	if (strlen(secret) == sizeof(secret) - 1)
		ereport(ERROR,
				errcode(ERRCODE_CONFIG_FILE_ERROR),
				errmsg("the first line of file \"%s\" has more than %d bytes", path, SECRET_SIZE - 2));
	return pstrdup(secret);
}
