/*-------------------------------------------------------------------------
 *
 * host_number.h
 *	  The number of a host.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_HOST_NUMBER_H
#define SNOWFLAKE_HOST_NUMBER_H

extern int32 snowflake_host_number_of_name(char *text, size_t size);
extern int32 snowflake_host_number_of_addresses(const char *named, char *text, size_t size);

#endif							/* SNOWFLAKE_HOST_NUMBER_H */
