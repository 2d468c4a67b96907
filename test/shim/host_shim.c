/*
 * host_shim.c - the name and the addresses of a host that is not this one, for a
 * server that is started with this library preloaded:
 *
 *   SNOWFLAKE_HOST_NAME=db-3.example.org
 *   SNOWFLAKE_HOST_ADDRESSES=10.0.1.7,2001:db8::9		in this order
 *
 * 127.* and ::1 are loopback, fe80:* is link-local.  One with "-" before it is that of an
 * interface that is down, and "-" alone an interface without an address.  What is not set
 * is none.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int
gethostname(char *name, size_t size)
{
	const char *host = getenv("SNOWFLAKE_HOST_NAME");

	strncpy(name, host ? host : "", size);
	return 0;
}

int
getifaddrs(struct ifaddrs **interfaces)
{
	const char *list = getenv("SNOWFLAKE_HOST_ADDRESSES");
	char	   *copy = strdup(list ? list : "");

	*interfaces = NULL;
	for (char *text = strtok(copy, ","); text; text = strtok(NULL, ","))
	{
		struct ifaddrs *interface = calloc(1, sizeof(*interface));
		struct sockaddr_in6 *six = calloc(1, sizeof(*six));
		struct sockaddr_in *four = (struct sockaddr_in *) six;

		interface->ifa_name = "shim0";
		if (*text == '-')
			text++;
		else
			interface->ifa_flags = IFF_UP;
		if (*text != '\0')
			interface->ifa_addr = (struct sockaddr *) six;
		if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
			four->sin_family = AF_INET;
		else if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1)
			six->sin6_family = AF_INET6;
		if (strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0)
			interface->ifa_flags |= IFF_LOOPBACK;

		while (*interfaces)
			interfaces = &(*interfaces)->ifa_next;
		*interfaces = interface;
	}
	free(copy);
	return 0;
}

void
freeifaddrs(struct ifaddrs *interfaces)
{
	while (interfaces)
	{
		struct ifaddrs *next = interfaces->ifa_next;

		free(interfaces->ifa_addr);
		free(interfaces);
		interfaces = next;
	}
}
