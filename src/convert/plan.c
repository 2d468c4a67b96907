/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  The statements of a conversion.
 *
 * They name everything with its schema, and do the same when run by hand.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "convert/convert.h"

static const char *
new_type_name(Conversion *conv, KeyColumn *column)
{
	return column->new_type == INT8OID ? "bigint" :
		psprintf("%s.snowflake", conv->schema);
}

static void
add_statement(Conversion *conv, Oid relid, char *relation, Oid owner, char *command)
{
	KeyStatement *statement = palloc(sizeof(KeyStatement));

	statement->relid = relid;
	statement->relation = relation;
	statement->owner = owner;
	statement->command = command;
	conv->statements = lappend(conv->statements, statement);
}

static void
add_notice(Conversion *conv, char *notice)
{
	conv->notices = lappend(conv->notices, notice);
}

/* The first column of each table to be altered: the key, then the others. */
static List *
altered_tables(Conversion *conv)
{
	List	   *tables = NIL;
	Oid			last = InvalidOid;
	bool		key_first = snowflake_convert_alters(conv, conv->key);
	ListCell   *lc;

	if (key_first)
		tables = lappend(tables, conv->key);
	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		if (!snowflake_convert_alters(conv, column) || column->relid == last ||
			(key_first && column->relid == conv->relid))
			continue;
		tables = lappend(tables, column);
		last = column->relid;
	}
	return tables;
}

/* One ALTER TABLE for all columns of a table, so that it is rewritten once. */
static void
plan_table(Conversion *conv, KeyColumn *table)
{
	StringInfoData statement;
	ListCell   *lc;

	initStringInfo(&statement);
	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);
		char	   *alter;

		if (column->relid != table->relid || !snowflake_convert_alters(conv, column))
			continue;

		alter = psprintf("%s ALTER COLUMN %s", statement.len == 0 ? "" : ",",
						 quote_identifier(column->name));
		if (OidIsValid(column->new_type))
		{
			/* the key's old default might have no cast to the new type */
			if (column->is_key && column->default_expr != NULL)
			{
				appendStringInfo(&statement, "%s DROP DEFAULT", alter);
				alter = psprintf(", ALTER COLUMN %s", quote_identifier(column->name));
			}
			appendStringInfo(&statement, "%s TYPE %s", alter,
							 new_type_name(conv, column));
			alter = psprintf(", ALTER COLUMN %s", quote_identifier(column->name));
			add_notice(conv, psprintf("column \"%s\" of table %s was %s and is now %s: the table was rewritten",
									  column->name, column->table, column->type_name,
									  new_type_name(conv, column)));
		}
		if (column->is_key)
			appendStringInfo(&statement, "%s SET DEFAULT %s.snowflake_next()",
							 alter, conv->schema);
	}
	add_statement(conv, table->relid, table->table, table->owner,
				  psprintf("ALTER TABLE %s%s", table->table, statement.data));
}

/*
 * A foreign key between tables of two owners would be re-created by the ALTER
 * TABLE of the referenced table, and so be checked with the rights of that
 * table's owner, over a table of the other.  So it is dropped before, and re-created
 * afterwards, with the rights of the referencing table's owner.
 */
static void
plan_set_aside(Conversion *conv, bool before)
{
	ListCell   *lc;

	foreach(lc, conv->references)
	{
		KeyReference *reference = lfirst(lc);
		const char *name = quote_identifier(reference->name);

		if (!reference->is_set_aside)
			continue;
		if (before)
			add_statement(conv, reference->relid, reference->table, reference->owner,
						  psprintf("ALTER TABLE %s DROP CONSTRAINT %s",
								   reference->table, name));
		else
			add_statement(conv, reference->relid, reference->table, reference->owner,
						  psprintf("ALTER TABLE %s ADD CONSTRAINT %s %s", reference->table,
								   name, reference->definition));
		if (!before && reference->comment != NULL)
			add_statement(conv, reference->relid, reference->table, reference->owner,
						  psprintf("COMMENT ON CONSTRAINT %s ON %s IS %s", name,
								   reference->table, reference->comment));
	}
}

/*
 * What an identity of pgEdge's extension leaves behind is no identity any more,
 * but its sequence hangs on the column as if it were: no statement can drop it.
 */
static const char *
reason_to_keep(KeySequence *sequence)
{
	if (sequence->extension)
		return psprintf("it belongs to extension \"%s\"", sequence->extension);
	if (sequence->is_remnant)
		return "the column depends on it, although it is not an identity column";
	if (sequence->dependents)
		return psprintf("it is used by %s", sequence->dependents);
	return sequence->is_owned ? "no default of the column used it" : "the column does not own it";
}

/*
 * Write down the statements, and what they do in words.  No statement at all:
 * there is nothing to do.
 */
void
snowflake_convert_plan(Conversion *conv)
{
	List	   *tables = altered_tables(conv);
	StringInfoData lock_list;
	ListCell   *lc,
			   *lc2;

	conv->statements = conv->notices = NIL;
	if (tables == NIL)
		return;

	initStringInfo(&lock_list);
	foreach(lc, tables)
		appendStringInfo(&lock_list, "%s%s", lock_list.len == 0 ? "" : ", ",
						 ((KeyColumn *) lfirst(lc))->table);
	add_statement(conv, InvalidOid, NULL, InvalidOid,
				  psprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", lock_list.data));
	plan_set_aside(conv, true);

	/*
	 * An identity goes before everything else: it allows neither the type nor
	 * a default.  A partition that has no sequence of its own shares its
	 * parent's identity, and loses it with its parent.
	 */
	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		foreach(lc2, conv->columns)
		{
			KeyColumn  *column = lfirst(lc2);

			if (!column->is_key || column->relid != sequence->identity_of)
				continue;
			add_statement(conv, column->relid, column->table, column->owner,
						  psprintf("ALTER TABLE %s ALTER COLUMN %s DROP IDENTITY",
								   column->table, quote_identifier(column->name)));
			add_notice(conv, psprintf("column \"%s\" of table %s was an identity column; its sequence %s is dropped",
									  column->name, column->table, sequence->name));
		}
	}

	foreach(lc, conv->columns)
	{
		KeyColumn  *column = lfirst(lc);

		/* most partitions have their parent's default */
		if (column->is_key && column->default_expr != NULL && !column->fills_itself &&
			(column->is_top || conv->key->default_expr == NULL ||
			 strcmp(column->default_expr, conv->key->default_expr) != 0))
			add_notice(conv, psprintf("column \"%s\" of table %s had the default %s",
									  column->name, column->table, column->default_expr));
	}

	foreach(lc, tables)
		plan_table(conv, lfirst(lc));
	plan_set_aside(conv, false);
	if (conv->sets_default)
		add_notice(conv, psprintf("column \"%s\" of table %s now has the default %s.snowflake_next()",
								  conv->key->name, conv->key->table, conv->schema));

	foreach(lc, conv->sequences)
	{
		KeySequence *sequence = lfirst(lc);

		if (OidIsValid(sequence->identity_of))
			continue;
		if (snowflake_convert_drops(sequence))
		{
			add_statement(conv, sequence->relid, sequence->name, sequence->owner,
						  psprintf("DROP SEQUENCE %s", sequence->name));
			add_notice(conv, psprintf("sequence %s is dropped", sequence->name));
		}
		else
			add_notice(conv, psprintf("sequence %s is kept: %s", sequence->name,
									  reason_to_keep(sequence)));
	}
}
