/*-------------------------------------------------------------------------
 *
 * planner.h
 *	  How the planner uses the times of IDs.
 *
 * Other folders call snowflake_timehook_init() only.  The rest is shared by the files
 * of this folder that look at queries.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_PLANNER_H
#define SNOWFLAKE_PLANNER_H

#include "access/stratnum.h"
#include "fmgr.h"
#include "nodes/pathnodes.h"
#include "optimizer/planner.h"

#include "layout/layout.h"

/* timehook.c: where the planner calls this folder */

extern void snowflake_timehook_init(void);

/* timeexpr.c: expressions of the time of an ID */

/* An expression of the time of an ID, read */
typedef struct SnowflakeTimeOfId
{
	Oid			decoded_by;		/* the function */
	Node	   *id;
	Node	   *layout;			/* NULL: the server's; the same for all rows */
	bool		is_local;		/* a timestamp or date, not an instant */
	Node	   *zone;			/* NULL: the session's */
	const char *unit;			/* it is truncated to; NULL: none */
	bool		is_year;		/* it is the number of its year */
} SnowflakeTimeOfId;

extern bool snowflake_timeexpr_is_supported_by(Oid function, PGFunction support);
extern Oid	snowflake_timeexpr_opfamily(void);
extern bool snowflake_timeexpr_is_among(List *opfamilies);
extern Node *snowflake_timeexpr_strip(Node *node);
extern bool snowflake_timeexpr_must_be_evaluated_once(Node *node);
extern bool snowflake_timeexpr_read(Node *node, SnowflakeTimeOfId *time);
extern bool snowflake_timeexpr_read_plain(Node *node, bool is_local, SnowflakeTimeOfId *time);
extern Node *snowflake_timeexpr_ascends_with(Node *node);
extern bool snowflake_timeexpr_may_fold(const PlannerInfo *root);
extern Node *snowflake_timeexpr_text(const char *text);
extern const char *snowflake_timeexpr_get_text(Node *node);
extern Node *snowflake_timeexpr_call(Oid decoded_by, const char *name, Oid first, Oid result,
									 List *args);

/* timerange.c, timeperiod.c: what the functions in plans return for a value */

extern int64 snowflake_timerange_bound(const SnowflakeLayout *layout, Oid type, Datum time,
									   bool inclusive);
#define SNOWFLAKE_TIMEPERIOD_NONE	"none"

extern bool snowflake_timeperiod_is_zone(const char *name);
extern const char *snowflake_timeperiod_unit(const char *name);

/* timebound.c: a comparison with a time as conditions on the ID */

/* The time of an ID that is compared in a query */
typedef struct SnowflakeTimeContext
{
	PlannerInfo *root;
	Index		relid;			/* the table of the ID; 0: any */
	SnowflakeTimeOfId time;
} SnowflakeTimeContext;

extern bool snowflake_timebound_is_known_first(Node *value);
extern bool snowflake_timebound_constant(const SnowflakeTimeContext *context, Node *time,
										 bool inclusive, int64 *bound);
extern Node *snowflake_timebound_compare(const SnowflakeTimeContext *context, bool is_upper,
										 Node *bound);
extern Node *snowflake_timebound_time(const SnowflakeTimeContext *context, bool is_upper,
									  Node *time, bool inclusive);
extern Node *snowflake_timebound_both(Node *one, Node *other);
extern Node *snowflake_timebound_between(const SnowflakeTimeContext *context, Node *time);
extern Node *snowflake_timebound_range(const SnowflakeTimeContext *context,
									   StrategyNumber strategy, Node *value, Node **exact_if);
extern Node *snowflake_timebound_number(Oid type, int64 value);

/* timefilter.c: conditions */

extern Node *snowflake_timefilter_wrap(Oid decoded_by, Node *condition);
extern Node *snowflake_timefilter_simplify(PlannerInfo *root, Index relid, Node *condition,
										   Oid *decoded_by);

/* indexscan.c: scans that are added */

extern bool snowflake_indexscan_is_column(RelOptInfo *rel, Node *node, AttrNumber column);
extern bool snowflake_indexscan_is_usable(const IndexOptInfo *index);
extern void snowflake_indexscan_add(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index,
									List *clauses, List *pathkeys, bool forward, Relids outer,
									double loop_count);

/* timejoin.c, timeorder.c: paths of a table */

extern void snowflake_timejoin_add_paths(PlannerInfo *root, RelOptInfo *rel);
extern void snowflake_timeorder_add_paths(PlannerInfo *root, RelOptInfo *rel, bool is_parent);
extern void snowflake_timeorder_add_sorted_path(PlannerInfo *root, UpperRelationKind stage,
												RelOptInfo *input_rel, RelOptInfo *output_rel);

#endif							/* SNOWFLAKE_PLANNER_H */
