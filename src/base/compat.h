/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between the supported versions of PostgreSQL.
 *
 * Only this file names PG_VERSION_NUM.  The code uses the newest interface, and this file
 * emulates it on older versions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_COMPAT_H
#define SNOWFLAKE_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "snowflake needs PostgreSQL 15 or later"
#endif

/* 16 (commit d952373a987): the macros of varlena types left postgres.h. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 16 (commit d9f7f5d32f2): input functions can report errors softly. */
#if PG_VERSION_NUM < 160000
#define ereturn(context, dummy_value, ...) \
	do { \
		(void) (context); \
		ereport(ERROR, __VA_ARGS__); \
		return (dummy_value); \
	} while (0)
#endif

/*
 * 16 (commit 089480c0770): a library exports only what is marked, and PG_FUNCTION_INFO_V1 marks
 * the function as well.  The Makefile hides all other symbols on every version, so a file that
 * uses that macro must include this one.
 */
#if PG_VERSION_NUM < 160000
#include "fmgr.h"

#undef PGDLLEXPORT
#define PGDLLEXPORT					__attribute__((visibility("default")))
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(funcname) \
	extern PGDLLEXPORT Datum funcname(PG_FUNCTION_ARGS); \
	extern PGDLLEXPORT const Pg_finfo_record *CppConcat(pg_finfo_, funcname) (void); \
	const Pg_finfo_record * \
	CppConcat(pg_finfo_, funcname) (void) \
	{ \
		static const Pg_finfo_record finfo = {1}; \
		return &finfo; \
	} \
	extern int	no_such_variable
#endif

/*
 * 16 (commit 7389aad6366): the postmaster waits for events.  Before, a signal that came just
 * before it slept was noticed up to a minute later.
 */
#define SNOWFLAKE_POSTMASTER_OVERSLEEPS	(PG_VERSION_NUM < 160000)

/* 16 (commit c727f511bd7): one function checks a privilege on any object. */
#if PG_VERSION_NUM < 160000
#include "catalog/pg_proc_d.h"

#define object_aclcheck(classid, objectid, roleid, mode) \
	((classid) == ProcedureRelationId ? pg_proc_aclcheck(objectid, roleid, mode) : \
	 pg_namespace_aclcheck(objectid, roleid, mode))
#endif

/* 16 (commit 407b50f2d42): a check hook's "extra" is guc_malloc'd. */
#if PG_VERSION_NUM < 160000
#define guc_malloc(elevel, size)	malloc(size)
#endif

/* 16 (commit 0a20ff54f5e): a setting can be looked up by its name. */
#if PG_VERSION_NUM < 160000
#include "utils/guc.h"
#include "utils/guc_tables.h"

static inline struct config_generic *
find_option(const char *name, bool create_placeholders, bool skip_errors,
			int elevel)
{
	struct config_generic **settings = get_guc_variables();

	for (int i = 0; i < GetNumConfigOptions(); i++)
		if (pg_strcasecmp(settings[i]->name, name) == 0)
			return settings[i];
	return NULL;
}
#endif

/* 16 (commit 1c27d16e6e5): walkers are declared with arguments, not with an empty list. */
#if PG_VERSION_NUM < 160000
#include "nodes/nodeFuncs.h"

#define expression_tree_walker(node, walker, context) \
	expression_tree_walker(node, (void *) (walker), context)
#endif

/* 16 (commit 357cfefb091): the absolute value of an int64; 17 dropped Abs(). */
#if PG_VERSION_NUM < 160000
#define i64abs(i)	((int64) Abs(i))
#endif

/* 17 (commit 8ecb1c5e7b4): named wait events for extensions. */
#if PG_VERSION_NUM < 170000
#define WaitEventExtensionNew(name)	PG_WAIT_EXTENSION
#endif

/* 17 (commit 024c5211175): a process knows its number in the process array. */
#if PG_VERSION_NUM < 170000
#define MyProcNumber				(MyProc->pgprocno)
#endif

/* 17 (commit 28f3915b73f): the number of another process follows from its address. */
#if PG_VERSION_NUM < 170000
#define GetNumberFromPGProc(proc)	((proc)->pgprocno)
#endif

/* 17 (commit ab355e3a88d): virtual transaction IDs are fields. */
#if PG_VERSION_NUM < 170000
#define LockInstanceLocalXid(instance)	((instance)->lxid)
#define MyLocalXid						(MyProc->lxid)
#else
#define LockInstanceLocalXid(instance)	((instance)->vxid.localTransactionId)
#define MyLocalXid						(MyProc->vxid.lxid)
#endif

/* 18: the postmaster's workers are in a doubly linked list. */
#if PG_VERSION_NUM < 180000
#define RegisteredWorkerIter		slist_iter
#define foreach_registered_worker(iter)	slist_foreach(iter, &BackgroundWorkerList)
#define registered_worker(iter)		slist_container(RegisteredBgWorker, rw_lnode, (iter).cur)
#else
#define RegisteredWorkerIter		dlist_iter
#define foreach_registered_worker(iter)	dlist_foreach(iter, &BackgroundWorkerList)
#define registered_worker(iter)		dlist_container(RegisteredBgWorker, rw_lnode, (iter).cur)
#endif

/* 18 (commit 3691edfab97): pg_noreturn comes before the declaration. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn					pg_attribute_noreturn()
#endif

/* 18 (commit 9324c8c5806): a module tells its name and version. */
#if PG_VERSION_NUM < 180000
#define PG_MODULE_MAGIC_EXT(...)	PG_MODULE_MAGIC
#endif

/* 18 (commit 8123e91f): a pathkey has a comparison in place of a btree strategy. */
#if PG_VERSION_NUM < 180000
#define PathKeyIsDescending(pathkey)	((pathkey)->pk_strategy == BTGreaterStrategyNumber)
#define PATHKEY_ASCENDING				BTLessStrategyNumber
#else
#define PathKeyIsDescending(pathkey)	((pathkey)->pk_cmptype == COMPARE_GT)
#define PATHKEY_ASCENDING				COMPARE_LT
#endif

/* 18 (commit 8123e91f): a comparison of rows has a comparison in place of a btree strategy. */
#if PG_VERSION_NUM < 180000
#define RowCompareStrategy(condition)	((condition)->rctype)
#else
#define RowCompareStrategy(condition)	((condition)->cmptype)
#endif

/*
 * 19: there is a hook for everything in FROM that the planner looks up; before that, for
 * tables only.
 */
#if PG_VERSION_NUM < 190000
#include "optimizer/plancat.h"

#define table_lookup_hook			get_relation_info_hook
#define table_lookup_hook_type		get_relation_info_hook_type
#define TABLE_LOOKUP_PARAMETERS		PlannerInfo *root, Oid relation, bool inhparent, RelOptInfo *rel
#define TABLE_LOOKUP_ARGUMENTS		root, relation, inhparent, rel
#define TABLE_LOOKUP_IS_TABLE		true
#else
#include "optimizer/pathnode.h"

#define table_lookup_hook			build_simple_rel_hook
#define table_lookup_hook_type		build_simple_rel_hook_type
#define TABLE_LOOKUP_PARAMETERS		PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte
#define TABLE_LOOKUP_ARGUMENTS		root, rel, rte
#define TABLE_LOOKUP_IS_TABLE		(rte->rtekind == RTE_RELATION)
#endif

/* 19: the appended paths are passed in a struct. */
#if PG_VERSION_NUM < 190000
#define create_ordered_append_path(root, rel, scans, pathkeys) \
	create_append_path(root, rel, scans, NIL, pathkeys, NULL, 0, false, -1)
#else
#define create_ordered_append_path(root, rel, scans, pathkeys) \
	create_append_path(root, rel, (AppendPathInput) {.subpaths = (scans)}, pathkeys, NULL, 0, \
					   false, -1)
#endif

/*
 * 17 (commit d86d20f0ba7): injection points, in servers that were built with them. 18: they can
 * be loaded beforehand, for places where nothing may be allocated (commit 4b211003ecc), and
 * have an argument (commit 371f2db8b05).
 */
#ifdef USE_INJECTION_POINTS
#include "utils/injection_point.h"
#if PG_VERSION_NUM >= 180000
#define SNOWFLAKE_INJECTION_POINT(name)			INJECTION_POINT(name, NULL)
#define SNOWFLAKE_INJECTION_POINT_LOAD(name)	INJECTION_POINT_LOAD(name)
#define SNOWFLAKE_INJECTION_POINT_CACHED(name)	INJECTION_POINT_CACHED(name, NULL)
#else
#define SNOWFLAKE_INJECTION_POINT(name)			INJECTION_POINT(name)
#define SNOWFLAKE_INJECTION_POINT_LOAD(name)	((void) 0)
#define SNOWFLAKE_INJECTION_POINT_CACHED(name)	INJECTION_POINT(name)
#endif
#else
#define SNOWFLAKE_INJECTION_POINT(name)			((void) 0)
#define SNOWFLAKE_INJECTION_POINT_LOAD(name)	((void) 0)
#define SNOWFLAKE_INJECTION_POINT_CACHED(name)	((void) 0)
#endif

#endif							/* SNOWFLAKE_COMPAT_H */
