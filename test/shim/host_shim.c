/*
 * host_shim.c - the name and the addresses of a host that is not this one, for a
 * server that is started with this library preloaded.  The file that the environment
 * variable SNOWFLAKE_HOST_FILE names has them, and can be replaced while the server runs:
 *
 *   db-3.example.org
 *   lo=127.0.0.1,eth0=10.0.1.7,eth0=2001:db8::9,-docker0=172.17.0.1,wlan0=
 *
 * 127.* and ::1 are loopback.  An interface with "-" before it is down, and one may have no
 * address.  Without the file the host has neither a name nor an address.
 *
 *		cc -shared -fPIC -O2 -o host_shim.so host_shim.c
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line of the file, by number, without its end. */
static void
read_line(int number, char *line, size_t size)
{
	const char *path = getenv("SNOWFLAKE_HOST_FILE");
	FILE	   *file = path ? fopen(path, "r") : NULL;

	line[0] = '\0';
	while (file && number-- >= 0)
		if (!fgets(line, (int) size, file))
			line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
}

int
gethostname(char *name, size_t size)
{
	char		line[1024];

	read_line(0, line, sizeof(line));
	strncpy(name, line, size);
	return 0;
}

int
getifaddrs(struct ifaddrs **interfaces)
{
	char		line[1024];

	read_line(1, line, sizeof(line));
	*interfaces = NULL;
	for (char *text = strtok(line, ","); text; text = strtok(NULL, ","))
	{
		struct ifaddrs *interface = calloc(1, sizeof(*interface));
		struct sockaddr_in6 *six = calloc(1, sizeof(*six));
		struct sockaddr_in *four = (struct sockaddr_in *) six;
		char	   *address = strchr(text, '=');

		*address++ = '\0';
		interface->ifa_flags = *text == '-' ? 0 : IFF_UP;
		interface->ifa_name = strdup(text + (*text == '-'));
		if (*address != '\0')
			interface->ifa_addr = (struct sockaddr *) six;
		if (inet_pton(AF_INET, address, &four->sin_addr) == 1)
			four->sin_family = AF_INET;
		else if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1)
			six->sin6_family = AF_INET6;
		if (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)
			interface->ifa_flags |= IFF_LOOPBACK;

		while (*interfaces)
			interfaces = &(*interfaces)->ifa_next;
		*interfaces = interface;
	}
	return 0;
}

void
freeifaddrs(struct ifaddrs *interfaces)
{
	while (interfaces)
	{
		struct ifaddrs *next = interfaces->ifa_next;

		free(interfaces->ifa_name);
		free(interfaces->ifa_addr);
		free(interfaces);
		interfaces = next;
	}
}
