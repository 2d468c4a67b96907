/*-------------------------------------------------------------------------
 *
 * keeper_text.h
 *	  What is wrong with the keeper, in words.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_KEEPER_TEXT_H
#define SNOWFLAKE_KEEPER_TEXT_H

extern const char *snowflake_keeper_text_trouble(const char **todo);
extern const char *snowflake_keeper_text_advice(bool mints_wait);

#endif							/* SNOWFLAKE_KEEPER_TEXT_H */
