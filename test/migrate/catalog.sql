-- One line for each fact of the catalogs that a migration must not lose: before and after.
\pset tuples_only on
\pset format unaligned
\pset fieldsep ' | '
\if :{?n}
\else
\set n 'IN (''app'', ''billing'')'
\endif
SELECT current_setting('server_version_num')::integer >= 180000 AS has_enforced \gset
\set enforced '''enforced true'''
\if :has_enforced
\set enforced '''enforced '' || conenforced'
\endif
SELECT 'column', c.oid::regclass, a.attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'not null' END, attidentity, attgenerated,
	pg_get_expr(adbin, adrelid), 'stat ' || coalesce(attstattarget, -1), array_to_string(ARRAY(SELECT o FROM unnest(attoptions) AS o WHERE o !~ '^pg_'), ','),
	attacl, col_description(c.oid, attnum), concat('stored ', attstorage, attcompression)
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON adrelid = c.oid AND adnum = attnum
	WHERE relnamespace::regnamespace::text :n AND relkind IN ('r', 'p', 'v', 'm') AND attnum > 0 AND NOT attisdropped;
SELECT 'constraint', conrelid::regclass, conname, contype, pg_get_constraintdef(oid), 'valid ' || convalidated, :enforced, 'islocal ' || conislocal,
	obj_description(oid, 'pg_constraint')
	FROM pg_constraint WHERE connamespace::regnamespace::text :n AND conrelid <> 0;
SELECT 'index', i.indexrelid::regclass, pg_get_indexdef(indexrelid), 'clustered ' || indisclustered, 'replident ' || indisreplident, 'valid ' || indisvalid, reloptions,
	(SELECT string_agg(attnum || ': ' || attstattarget, ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = indexrelid AND attstattarget >= 0),
	obj_description(indexrelid, 'pg_class'), (SELECT spcname FROM pg_tablespace t WHERE t.oid = reltablespace), (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = indexrelid)
	FROM pg_index i JOIN pg_class c ON c.oid = indexrelid WHERE relnamespace::regnamespace::text :n;
SELECT 'relation', oid::regclass, relkind, relowner::regrole, (SELECT array_agg(a ORDER BY a::text) FROM unnest(relacl) a), reloptions, 'replident', relreplident, 'rls ' || relrowsecurity, 'filled ' || relispopulated,
	obj_description(oid, 'pg_class'), (SELECT t.reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid)
	FROM pg_class c WHERE relnamespace::regnamespace::text :n AND relkind NOT IN ('i', 'I', 'S', 'c');
SELECT 'view', oid::regclass, regexp_replace(pg_get_viewdef(oid), '\s+', ' ', 'g') FROM pg_class WHERE relnamespace::regnamespace::text :n AND relkind IN ('v', 'm');
SELECT 'function', oid::regprocedure, proowner::regrole, proacl, regexp_replace(pg_get_functiondef(oid), '\s+', ' ', 'g'), obj_description(oid, 'pg_proc')
	FROM pg_proc WHERE pronamespace::regnamespace::text :n;
SELECT 'trigger', tgrelid::regclass, tgname, pg_get_triggerdef(oid), tgenabled, obj_description(oid, 'pg_trigger')
	FROM pg_trigger t WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace::regnamespace::text :n);
SELECT 'foreign key trigger', c.conrelid::regclass, c.conname, t.tgrelid::regclass, p.proname, t.tgenabled
	FROM pg_trigger t JOIN pg_constraint c ON c.oid = t.tgconstraint JOIN pg_proc p ON p.oid = t.tgfoid
	WHERE c.contype = 'f' AND c.connamespace::regnamespace::text :n;
SELECT 'rule', ev_class::regclass, rulename, regexp_replace(pg_get_ruledef(r.oid), '\s+', ' ', 'g'), ev_enabled, obj_description(r.oid, 'pg_rewrite')
	FROM pg_rewrite r JOIN pg_class c ON c.oid = ev_class WHERE relnamespace::regnamespace::text :n AND rulename <> '_RETURN';
SELECT 'policy', polrelid::regclass, polname, polcmd, polpermissive, polroles::regrole[], regexp_replace(pg_get_expr(polqual, polrelid), '\s+', ' ', 'g'),
	pg_get_expr(polwithcheck, polrelid), obj_description(oid, 'pg_policy')
	FROM pg_policy;
SELECT 'publication', pubname, schemaname, tablename, (SELECT array_agg(x ORDER BY x) FROM unnest(attnames) x), rowfilter FROM pg_publication_tables;
SELECT 'statistics', stxname, pg_get_statisticsobjdef(oid), stxowner::regrole, coalesce(stxstattarget, -1), obj_description(oid, 'pg_statistic_ext') FROM pg_statistic_ext;
SELECT 'sequence', s.oid::regclass, format_type(seqtypid, NULL), seqstart, relacl, obj_description(s.oid, 'pg_class'), 'owned by ' || coalesce((
	SELECT refobjid::regclass || '.' || (SELECT attname FROM pg_attribute WHERE attrelid = refobjid AND attnum = refobjsubid) || ' ' || deptype::text FROM pg_depend
		WHERE classid = 'pg_class'::regclass AND objid = s.oid AND deptype IN ('a', 'i') AND refclassid = 'pg_class'::regclass), 'none')
	FROM pg_class s JOIN pg_sequence ON seqrelid = s.oid WHERE relnamespace::regnamespace::text :n;
SELECT 'pg_stats', schemaname || '.' || tablename, count(*) FROM pg_stats WHERE schemaname :n GROUP BY 2;
SELECT 'depends', pg_describe_object(classid, objid, 0), pg_describe_object(refclassid, refobjid, 0) FROM pg_depend WHERE deptype = 'x';
SELECT 'label', pg_describe_object(classoid, objoid, objsubid), provider, label FROM pg_seclabel;
