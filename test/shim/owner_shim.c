/*
 * owner_shim.c - a file that seems to belong to another user, for a server that is
 * started with this library preloaded:
 *
 *   SNOWFLAKE_OWNED_FILE=/path/to/file
 *   SNOWFLAKE_OWNER=0			the user's number
 *
 * fstat() says so, and nothing else changes.  A test cannot give files away.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

int
fstat(int fd, struct stat *file)
{
	static int	(*real_fstat) (int, struct stat *);
	const char *path = getenv("SNOWFLAKE_OWNED_FILE");
	const char *owner = getenv("SNOWFLAKE_OWNER");
	int			save_errno = errno;
	struct stat owned;

	if (real_fstat == NULL)
		real_fstat = (int (*) (int, struct stat *)) dlsym(RTLD_NEXT, "fstat");
	if (real_fstat(fd, file) != 0)
		return -1;
	if (path != NULL && owner != NULL && stat(path, &owned) == 0 &&
		owned.st_dev == file->st_dev && owned.st_ino == file->st_ino)
		file->st_uid = atoi(owner);
	errno = save_errno;
	return 0;
}
