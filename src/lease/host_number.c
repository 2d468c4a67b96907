/*-------------------------------------------------------------------------
 *
 * host_number.c
 *	  The number of a host, from its name or its addresses.
 *
 * Two hosts that have the same number mint the same IDs, so names and
 * addresses that are known to be random, or common to many hosts, are refused.
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

#include "lib/stringinfo.h"
#include "port/pg_bswap.h"
#include "storage/fd.h"
#include "utils/builtins.h"

#include "base/compat.h"
#include "layout/server_layout.h"
#include "lease/node_settings.h"

#define DIGITS				"0123456789"
#define SEPARATORS			"-_."	/* in a host's name */
#define IPV6_ADDRESSES		"/proc/net/if_inet6"
#define IPV6_TEMPORARY		0x01	/* a flag there */

/* Beginnings of the names of interfaces that many hosts have, with the same addresses. */
static const char *const common_interfaces[] = {
	"docker", "br-", "podman", "cni", "virbr", "lxcbr", "lxdbr", "vboxnet", "vmnet"
};

/* Private networks that many hosts have: those of Docker, Podman, libvirt, and a NAT */
static const struct
{
	uint32		network;
	uint32		mask;
}			common_networks[] = {
	{0xAC110000, 0xFFFF0000},	/* 172.17.0.0/16 */
	{0x0A580000, 0xFFFF0000},	/* 10.88.0.0/16 */
	{0xC0A87A00, 0xFFFFFF00},	/* 192.168.122.0/24 */
	{0x0A00020F, 0xFFFFFFFF},	/* 10.0.2.15 */
};

/* Does a name contain four numbers in a row that look like an address, such as ip-10-0-1-17? */
static bool
has_address(const char *name)
{
	int			octets = 0;

	for (;;)
	{
		size_t		length = strcspn(name, SEPARATORS);

		octets = length > 0 && length <= 3 && strspn(name, DIGITS) >= length &&
			strtol(name, NULL, 10) <= 255 ? octets + 1 : 0;
		if (octets == 4)
			return true;
		name += length;
		if (*name++ == '\0')
			return false;
	}
}

/* How many digits end the first "length" characters of a name, after a separator? */
static size_t
final_digits(const char *name, size_t length)
{
	size_t		digits = 0;

	while (digits < length && isdigit((unsigned char) name[length - digits - 1]))
		digits++;
	return digits < length && strchr(SEPARATORS, name[length - digits - 1]) != NULL ? digits : 0;
}

/*
 * Find the number at the end of the host's name that follows a separator, such as 3 of
 * "db-3.example.org" or 7 of "orders.7".  Returns a sentence that says why there is
 * none, or NULL.  A number that is larger than any node ID becomes INT_MAX.  One that was not
 * meant as the host's own is refused, as far as that can be recognized.
 */
static const char *
find_number(const char *name, int32 *number)
{
	size_t		length = strcspn(name, ".");
	size_t		digits = final_digits(name, length);
	int64		sum = 0;

	if (has_address(name))
		return "It contains an address, whose last number hosts of other networks may also have.";
	if (length == 12 && strspn(name, "0123456789abcdef") >= length)
		return "Twelve hexadecimal digits are the random name of a container.";
	if (digits == 0 && name[length] != '\0')
	{
		/* the host's own name may have a dot */
		length += 1 + strcspn(name + length + 1, ".");
		digits = final_digits(name, length);
	}
	if (digits == 0)
		return "It does not end with a number after a hyphen, an underscore or a dot, as \"db-3\" does.";
	if (digits == 5 && strspn(name + length - digits, "2456789") >= digits)
		return "Five digits without 0, 1 and 3 may be the random end of a pod's name.";
	for (size_t i = length - digits; i < length && sum <= INT_MAX; i++)
		sum = sum * 10 + (name[i] - '0');
	*number = (int32) Min(sum, INT_MAX);
	return NULL;
}

/*
 * Returns the number at the end of the host's name, or -1.  Sets "text" to what it was taken
 * from, or to a sentence that says why there is none.
 */
int32
snowflake_host_number_of_name(char *text, size_t size)
{
	char		name[256];
	int32		number = -1;
	const char *complaint;

	if (gethostname(name, sizeof(name)) != 0)
		name[0] = '\0';
	name[sizeof(name) - 1] = '\0';
	complaint = find_number(name, &number);
	if (complaint == NULL)
		snprintf(text, size, "host name \"%s\"", name);
	else
		snprintf(text, size, "The name is \"%s\". %s", name, complaint);
	return number;
}

/* Is an IPv6 address a temporary one?  getifaddrs() does not say; Linux has it in a file. */
static bool
is_temporary(const struct in6_addr *address)
{
	FILE	   *file = AllocateFile(IPV6_ADDRESSES, "r");
	const size_t length = 2 * sizeof(*address);
	char		sought[2 * sizeof(*address) + 1] = "";
	char		line[MAXPGPATH];
	bool		result = false;

	if (file == NULL)
		return false;
	hex_encode((const char *) address, sizeof(*address), sought);

	/* the address, three other numbers, the flags, and a name */
	while (!result && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, sought, length) == 0)
		{
			const char *field = line + length;

			for (int i = 0; i < 3; i++)
				field += strspn(field, " ") + strcspn(field + strspn(field, " "), " ");
			result = strtoul(field, NULL, 16) & IPV6_TEMPORARY;
		}
	FreeFile(file);
	return result;
}

/* Is this an interface or an IPv4 address that many hosts have in common? */
static bool
is_common(const char *interface, uint32 bits, bool is_ipv4)
{
	for (size_t i = 0; i < lengthof(common_interfaces); i++)
		if (strncmp(interface, common_interfaces[i], strlen(common_interfaces[i])) == 0)
			return true;
	for (size_t i = 0; i < lengthof(common_networks) && is_ipv4; i++)
		if ((bits & common_networks[i].mask) == common_networks[i].network)
			return true;
	return false;
}

/*
 * Check one address of an interface.  Returns why it does not count, or NULL, and sets
 * *bits to its last 32 bits and "text" to the address.
 */
static const char *
look_at_address(const struct ifaddrs *interface, bool is_named, uint32 *bits,
				char *text, socklen_t size)
{
	bool		is_ipv4 = interface->ifa_addr->sa_family == AF_INET;
	const void *address = is_ipv4 ?
	(const void *) &((const struct sockaddr_in *) interface->ifa_addr)->sin_addr :
	(const void *) &((const struct sockaddr_in6 *) interface->ifa_addr)->sin6_addr;
	bool		is_link_local;

	memcpy(bits, (const char *) address + (is_ipv4 ? 0 : 12), sizeof(*bits));
	*bits = pg_ntoh32(*bits);
	is_link_local = is_ipv4 ? (*bits >> 16) == 0xA9FE :
		IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *) address);
	if (inet_ntop(interface->ifa_addr->sa_family, address, text, size) == NULL)
		return "unknown";
	if (!(interface->ifa_flags & IFF_UP))
		return "down";
	if (is_link_local)
		return "link-local";
	if (!is_ipv4 && is_temporary(address))
		return "temporary";
	if (!is_named && is_common(interface->ifa_name, *bits, is_ipv4))
		return "common to many hosts";
	return NULL;
}

/*
 * Returns the low bits of the addresses, of IPv4 first, as many as the layout has for a node, or
 * -1.  All must give the same number, since another one may be the first at the next start.
 */
static int32
choose_address(const struct ifaddrs *interfaces, const char *named, char *text, size_t size)
{
	static const int families[] = {AF_INET, AF_INET6};
	int32		number = -1;
	bool		differ = false;
	StringInfoData seen;

	initStringInfo(&seen);
	for (size_t i = 0; i < lengthof(families) && number < 0; i++)
		for (const struct ifaddrs *interface = interfaces; interface != NULL;
			 interface = interface->ifa_next)
		{
			char		address[INET6_ADDRSTRLEN];
			const char *complaint;
			uint32		bits;
			int32		own;

			if (interface->ifa_addr == NULL ||
				interface->ifa_addr->sa_family != families[i] ||
				(interface->ifa_flags & IFF_LOOPBACK) ||
				(named != NULL && strcmp(interface->ifa_name, named) != 0))
				continue;
			complaint = look_at_address(interface, named != NULL, &bits,
										address, sizeof(address));
			appendStringInfo(&seen, "%s\"%s\" has %s", seen.len == 0 ? "" : ", ",
							 interface->ifa_name, address);
			if (complaint != NULL)
			{
				appendStringInfo(&seen, " (%s)", complaint);
				continue;
			}
			own = (int32) (bits & (uint32) snowflake_server_layout.max_node);
			differ |= number >= 0 && number != own;
			number = own;
			snprintf(text, size, "address %s of interface \"%s\"", address, interface->ifa_name);
		}
	if (differ)
		number = -1;
	if (number < 0)
		snprintf(text, size,
				 differ ? "They give different node IDs: %s." :
				 seen.len > 0 ? "None of them can be used: %s." :
				 named != NULL ? "No interface \"%s\" has an address." :
				 "There are only loopback addresses.",
				 seen.len > 0 ? seen.data : named);
	pfree(seen.data);
	return number;
}

/*
 * Returns the low bits of the host's addresses, or of those of the named interface, or -1.
 * "text" is as for snowflake_host_number_of_name().
 */
int32
snowflake_host_number_of_addresses(const char *named, char *text, size_t size)
{
	struct ifaddrs *interfaces;
	int32		number;

	if (getifaddrs(&interfaces) != 0)
	{
		snprintf(text, size, "They cannot be read: %m.");
		return -1;
	}
	number = choose_address(interfaces, named, text, size);
	freeifaddrs(interfaces);
	return number;
}
