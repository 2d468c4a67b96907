/*-------------------------------------------------------------------------
 *
 * resolver_shim.c
 *	  A resolver that hangs: preloaded, getaddrinfo() of a name that ends with
 *	  ".hangs" takes half a minute.  One that ends with ".here" is 127.0.0.1, one that
 *	  ends with ".there" is 127.0.0.2, and one that ends with ".held" is 127.0.0.1, unless
 *	  the file RESOLVER_HOLDS exists: then it takes as long as that, and fails.  One that
 *	  ends with ".late" takes as long and is found.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*Resolve) (const char *node, const char *service,
						const struct addrinfo *hints, struct addrinfo **result);

static int
ends_with(const char *text, const char *end)
{
	size_t		length = strlen(text);

	return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	Resolve		resolve = (Resolve) dlsym(RTLD_NEXT, "getaddrinfo");

	if (node != NULL && ends_with(node, ".hangs"))
	{
		for (int left = 30; left > 0;)
			left = (int) sleep((unsigned) left);
		return EAI_AGAIN;
	}
	if (node != NULL && ends_with(node, ".held") && access(getenv("RESOLVER_HOLDS"), F_OK) == 0)
	{
		while (access(getenv("RESOLVER_HOLDS"), F_OK) == 0)
			usleep(10000);
		return EAI_AGAIN;
	}
	while (node != NULL && ends_with(node, ".late") && access(getenv("RESOLVER_HOLDS"), F_OK) == 0)
		usleep(10000);
	if (node != NULL &&
		(ends_with(node, ".here") || ends_with(node, ".held") || ends_with(node, ".late")))
		node = "127.0.0.1";
	else if (node != NULL && ends_with(node, ".there"))
		node = "127.0.0.2";
	return resolve(node, service, hints, result);
}
