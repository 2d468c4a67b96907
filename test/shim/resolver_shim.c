/*-------------------------------------------------------------------------
 *
 * resolver_shim.c
 *	  A resolver that takes its time: preloaded, getaddrinfo() of a name that ends with
 *	  ".held" takes as long as the file RESOLVER_HOLDS exists, which then gets a line with
 *	  the name.  A name that ends with ".held" or ".here" is 127.0.0.1, one that ends with ".missing"
 *	  is none.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
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

/* Say that the name is asked for, if there is the file, and wait until there is none. */
static void
wait_while_held(const char *node)
{
	const char *holds = getenv("RESOLVER_HOLDS");
	FILE	   *file = fopen(holds, "r+");

	if (file == NULL)
		return;
	fseek(file, 0, SEEK_END);
	fprintf(file, "%s\n", node);
	fclose(file);
	while (access(holds, F_OK) == 0)
		usleep(10000);
}

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	Resolve		resolve = (Resolve) dlsym(RTLD_NEXT, "getaddrinfo");

	if (node != NULL && ends_with(node, ".missing"))
		return EAI_NONAME;
	if (node != NULL && ends_with(node, ".held"))
		wait_while_held(node);
	if (node != NULL && (ends_with(node, ".here") || ends_with(node, ".held")))
		node = "127.0.0.1";
	return resolve(node, service, hints, result);
}
