/*-------------------------------------------------------------------------
 *
 * node_source.c
 *	  Where the node ID comes from: the setting, the host's name or address, or a
 *	  lease.
 *
 * All but the lease are looked up at each call, which is cheap
 * compared with the consequences, so this file has no state.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/compat.h"
#include "base/settings.h"
#include "layout/server_layout.h"
#include "lease/lease_state.h"
#include "lease/node_settings.h"
#include "lease/node_source.h"

/* What the status says of it: no URL, which says more than others need to know. */
const char *
snowflake_node_source_name(void)
{
	switch (snowflake_node_source)
	{
		case NODE_FROM_SETTING:
			return "setting";
		case NODE_FROM_HOSTNAME:
			return "hostname";
		case NODE_FROM_ADDRESS:
			return "address";
		case NODE_FROM_LEASE:
			return snowflake_node_settings_coordinator(snowflake_node_source_text);
	}
	return NULL;
}

/*
 * The number at the end of the host's name, such as 3 of "db-3.example.org", or -1.
 * What is larger than any node ID is INT_MAX.
 */
static int
number_of_host(char *name, size_t size)
{
	size_t		length,
				digits = 0;
	int64		number = 0;

	if (gethostname(name, size) != 0)
		name[0] = '\0';
	name[size - 1] = '\0';
	length = strcspn(name, ".");
	while (digits < length && isdigit((unsigned char) name[length - digits - 1]))
		digits++;
	if (digits == 0)
		return -1;
	for (size_t i = length - digits; i < length && number <= INT_MAX; i++)
		number = number * 10 + (name[i] - '0');
	return (int) Min(number, INT_MAX);
}

/* The last 32 bits of an address that can be told from those of other hosts. */
static bool
bits_of_address(const struct ifaddrs *interface, int family, uint32 *bits,
				char *text, size_t size)
{
	const struct sockaddr *address = interface->ifa_addr;

	if (address == NULL || address->sa_family != family ||
		(interface->ifa_flags & IFF_LOOPBACK) || !(interface->ifa_flags & IFF_UP))
		return false;
	if (family == AF_INET)
	{
		const struct in_addr *in = &((const struct sockaddr_in *) address)->sin_addr;

		*bits = ntohl(in->s_addr);
		return inet_ntop(family, in, text, size) != NULL;
	}
	else
	{
		const struct in6_addr *in = &((const struct sockaddr_in6 *) address)->sin6_addr;
		uint32		last;

		if (IN6_IS_ADDR_LINKLOCAL(in))
			return false;
		memcpy(&last, &in->s6_addr[12], sizeof(last));
		*bits = ntohl(last);
		return inet_ntop(family, in, text, size) != NULL;
	}
}

/*
 * The low bits of the host's first address that is not loopback, as many as the
 * layout has for a node, or -1 if there is no such address.  IPv4 comes first.
 */
static int
number_of_address(char *text, size_t size)
{
	static const int families[] = {AF_INET, AF_INET6};
	struct ifaddrs *interfaces;
	int			number = -1;
	uint32		bits;

	if (getifaddrs(&interfaces) != 0)
		return -1;
	for (size_t i = 0; i < lengthof(families) && number < 0; i++)
		for (struct ifaddrs *interface = interfaces; interface != NULL && number < 0;
			 interface = interface->ifa_next)
			if (bits_of_address(interface, families[i], &bits, text, size))
				number = (int) (bits & (uint32) snowflake_server_layout.max_node);
	freeifaddrs(interfaces);
	return number;
}

/*
 * The node ID with which to mint now, or what stands in the way.
 */
void
snowflake_node_source_wanted(SnowflakeNode *wanted)
{
	char		text[256];

	wanted->grant = 0;
	wanted->first = 0;
	wanted->end = PG_UINT64_MAX;
	switch (snowflake_node_source)
	{
		case NODE_FROM_SETTING:
			wanted->node = snowflake_node_id;
			break;
		case NODE_FROM_HOSTNAME:
			wanted->node = number_of_host(text, sizeof(text));
			if (wanted->node >= 0 && snowflake_node_id > 0)
				wanted->node = (int32) Min((int64) wanted->node + snowflake_node_id,
										   INT_MAX);
			break;
		case NODE_FROM_ADDRESS:
			wanted->node = number_of_address(text, sizeof(text));
			break;
		case NODE_FROM_LEASE:
			snowflake_lease_state_wanted(wanted);
			return;
	}
	wanted->obstacle =
		wanted->node < 0 ? GATE_NODE_UNSET :
		wanted->node > snowflake_server_layout.max_node ? GATE_NODE_TOO_LARGE : GATE_OPEN;
}

/* What the node ID was found in, for the log and the status. */
char *
snowflake_node_source_origin(void)
{
	char		text[256];

	switch (snowflake_node_source)
	{
		case NODE_FROM_SETTING:
			return psprintf("snowflake.node_id, which is set %s",
							snowflake_settings_origin("snowflake.node_id"));
		case NODE_FROM_HOSTNAME:
			(void) number_of_host(text, sizeof(text));
			return snowflake_node_id <= 0 ? psprintf("host name \"%s\"", text) :
				psprintf("host name \"%s\", plus snowflake.node_id %d",
						 text, snowflake_node_id);
		case NODE_FROM_ADDRESS:
			return number_of_address(text, sizeof(text)) < 0 ?
				pstrdup("an address that is not loopback, but there is none") :
				psprintf("address %s", text);
		case NODE_FROM_LEASE:
			return psprintf("a lease from %s", snowflake_node_source_name());
	}
	return NULL;
}

/* What is to be set for another node ID, for hints. */
const char *
snowflake_node_source_settings(void)
{
	return snowflake_node_source == NODE_FROM_SETTING ? "snowflake.node_id" :
		"snowflake.node_source to setting and snowflake.node_id";
}
