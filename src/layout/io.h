/*-------------------------------------------------------------------------
 *
 * io.h
 *	  What makes an integer a snowflake.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_IO_H
#define SNOWFLAKE_IO_H

extern int64 snowflake_io_check_sign(int64 value);

#endif							/* SNOWFLAKE_IO_H */
