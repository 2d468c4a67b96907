/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  Shared memory of the library.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_SHMEM_H
#define SNOWFLAKE_SHMEM_H

extern void snowflake_shmem_init(void);

#endif							/* SNOWFLAKE_SHMEM_H */
