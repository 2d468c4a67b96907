/*-------------------------------------------------------------------------
 *
 * compare.h
 *	  Comparisons of snowflakes as the planner knows them best.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_COMPARE_H
#define SNOWFLAKE_COMPARE_H

#include "access/stratnum.h"
#include "nodes/nodes.h"

extern Node *snowflake_compare_integers(Node *left, Node *right,
										StrategyNumber strategy);

#endif							/* SNOWFLAKE_COMPARE_H */
