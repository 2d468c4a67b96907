/*-------------------------------------------------------------------------
 *
 * convert.h
 *	  A conversion of an integer key: what is known about it.
 *
 * facts.c finds it out, obstacles.c and expressions.c say what stands in the
 * way, locks.c locks, plan.c makes statements of it, and convert.c does all that.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SNOWFLAKE_CONVERT_H
#define SNOWFLAKE_CONVERT_H

#include "access/attnum.h"
#include "catalog/pg_type.h"
#include "nodes/pg_list.h"

#include "base/compat.h"

/*
 * A column that hangs together with the key: in one of the key's own tables
 * (the table itself, its partitions and children), or in a table that
 * references it, directly or through others.
 */
typedef struct KeyColumn
{
	Oid			relid;
	AttrNumber	attnum;
	char	   *name;
	char	   *relname;
	char	   *table;			/* quoted and qualified */
	Oid			owner;			/* of the table */
	char		relkind;
	bool		is_key;			/* of the key's own tables */
	bool		is_top;			/* inherited from no other table */
	Oid			top;			/* where it is altered, if it is */
	bool		is_owner;		/* whether the caller has its owner's rights */
	Oid			type;
	Oid			new_type;		/* InvalidOid: stays as it is */
	char	   *type_name;
	char		identity;
	char		generated;
	char	   *default_expr;	/* NULL: none */
	bool		fills_itself;	/* by snowflake_next() */
	char	   *references;		/* a table that it references, or NULL */
	char	   *obstacle;		/* why its type cannot be changed, or NULL */
	bool		bounds_partitions;	/* by range or list */
} KeyColumn;

/* A sequence that the key owns or is filled from. */
typedef struct KeySequence
{
	Oid			relid;
	char	   *name;			/* quoted and qualified */
	Oid			owner;
	Oid			identity_of;	/* the table whose identity it is, or
								 * InvalidOid */
	bool		is_remnant;		/* of an identity, see plan.c */
	char	   *extension;		/* that it belongs to, or NULL */
	bool		is_owned;
	bool		is_used;		/* by a default of the key */
	char	   *dependents;		/* what else uses it, or NULL */
} KeySequence;

/*
 * A foreign key that must be re-created, because a column at one of its ends
 * changes its type.
 */
typedef struct KeyReference
{
	Oid			oid;
	Oid			relid;			/* the table that references */
	Oid			referenced;		/* the table that is referenced */
	Oid			owner;			/* of the table that references */
	char	   *name;
	char	   *table;			/* quoted and qualified */
	char	   *definition;
	char	   *comment;		/* quoted, or NULL */
	bool		is_set_aside;	/* see plan.c */
	char	   *obstacle;		/* why it cannot be, or NULL */
} KeyReference;

/* A statement about a relation, and the role with whose rights it runs. */
typedef struct KeyStatement
{
	Oid			relid;
	char	   *relation;		/* its name in the command */
	Oid			owner;
	char	   *command;
} KeyStatement;

/* The role that was before snowflake_convert_become(). */
typedef struct SavedRole
{
	Oid			role;
	int			context;
	int			nest_level;
} SavedRole;

typedef struct Conversion
{
	/* What was asked for */
	Oid			relid;
	char	   *column;
	Oid			type;			/* bigint or snowflake */
	bool		dry_run;

	/* The extension */
	char	   *schema;			/* quoted */
	Oid			snowflake_type;
	Oid			next_function;

	/* What was found: KeyColumn, in the order of relid and attnum */
	List	   *columns;
	KeyColumn  *key;			/* the one asked for */
	List	   *sequences;		/* KeySequence */
	List	   *references;		/* KeyReference */
	bool		sets_default;

	/* What is locked: OIDs of relations, and of owners of tables */
	List	   *locked;
	List	   *locked_owners;

	/* What comes of it */
	List	   *statements;		/* KeyStatement */
	List	   *notices;		/* C strings */
} Conversion;

/* facts.c */
extern void snowflake_convert_collect_columns(Conversion *conv);
extern void snowflake_convert_collect_sequences(Conversion *conv);
extern void snowflake_convert_collect_references(Conversion *conv);
extern void snowflake_convert_query_columns(Conversion *conv, const char *sql,
											bool of_key);

/* obstacles.c */
extern void snowflake_convert_check_table(Conversion *conv);
extern void snowflake_convert_check_columns(Conversion *conv);
extern Oid	snowflake_convert_table_owner(Oid relid);
pg_noreturn extern void snowflake_convert_refuse(Conversion *conv, int sqlstate,
												 const char *reason, const char *hint);

/* expressions.c */
extern void snowflake_convert_check_expressions(Conversion *conv);
extern void snowflake_convert_check_row_types(Conversion *conv);

/* roles.c */
extern void snowflake_convert_become(Oid role, int flags, SavedRole *saved);
extern void snowflake_convert_return(const SavedRole *saved);
extern int	snowflake_convert_run(Oid role, const char *command);

/* locks.c */
extern bool snowflake_convert_lock(Conversion *conv);

/* plan.c */
extern void snowflake_convert_plan(Conversion *conv);

/* Whether a column is where an ALTER TABLE has to start. */
static inline bool
snowflake_convert_alters(const Conversion *conv, const KeyColumn *column)
{
	return column->is_top &&
		(OidIsValid(column->new_type) || (column->is_key && conv->sets_default));
}

static inline bool
snowflake_convert_is_small_integer(Oid type)
{
	return type == INT2OID || type == INT4OID;
}

/* Whether a sequence is of no use when the key does not need it any more. */
static inline bool
snowflake_convert_drops(const KeySequence *sequence)
{
	return sequence->is_owned && !OidIsValid(sequence->identity_of) && sequence->is_used &&
		!sequence->is_remnant && sequence->extension == NULL && sequence->dependents == NULL;
}

#endif							/* SNOWFLAKE_CONVERT_H */
