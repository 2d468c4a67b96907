-- What hangs on keys in few applications: for test/t/606_migrate_rare.pl, whose migrations must not
-- lose any of it.  With -v offline=1 also what cannot be migrated online.  Run as a superuser.
\set ON_ERROR_STOP 1
SELECT current_setting('server_version_num')::integer >= 180000 AS is_18 \gset
SET client_min_messages = warning;
SET allow_in_place_tablespaces = on;
SELECT count(*) = 0 AS is_new FROM pg_roles WHERE rolname = 'rare_owner' \gset
\if :is_new
CREATE ROLE rare_owner;
CREATE ROLE "rare 'reader";
CREATE TABLESPACE rare_space LOCATION '';
GRANT CREATE ON TABLESPACE rare_space TO rare_owner;
\endif
CREATE EXTENSION btree_gist;
SELECT format('GRANT CREATE, TEMPORARY ON DATABASE %I TO rare_owner', current_database()) \gexec
CREATE SCHEMA rare AUTHORIZATION rare_owner;
GRANT USAGE ON SCHEMA rare TO "rare 'reader";
SET ROLE rare_owner;
SET search_path = rare, public;
ALTER DEFAULT PRIVILEGES IN SCHEMA rare GRANT SELECT ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

-- keys, references, constraints
CREATE TABLE keys (
	id integer GENERATED ALWAYS AS IDENTITY (START WITH 7 INCREMENT BY 3 CACHE 5) PRIMARY KEY WITH (fillfactor = 60) USING INDEX TABLESPACE rare_space,
	parent integer, code integer, note text, at timestamptz DEFAULT now(),
	CONSTRAINT keys_code UNIQUE NULLS NOT DISTINCT (code, parent) INCLUDE (id),
	CONSTRAINT keys_self FOREIGN KEY (parent) REFERENCES keys ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED,
	CONSTRAINT keys_check CHECK (id <> parent) NO INHERIT,
	CONSTRAINT keys_not_same EXCLUDE USING gist (id WITH =, note WITH <>) WITH (fillfactor = 70) WHERE (parent > 0) DEFERRABLE
) WITH (fillfactor = 80, autovacuum_enabled = true);
ALTER TABLE keys ADD CONSTRAINT keys_late CHECK (id > -1) NOT VALID;
GRANT USAGE, SELECT ON SEQUENCE keys_id_seq TO "rare 'reader";
COMMENT ON SEQUENCE keys_id_seq IS 'an identity''s';
COMMENT ON CONSTRAINT keys_check ON keys IS 'no loops';
COMMENT ON CONSTRAINT keys_not_same ON keys IS 'excluded';
COMMENT ON INDEX keys_not_same IS 'its index';
CREATE INDEX keys_in_space ON keys USING btree (parent DESC NULLS LAST, lower(note) COLLATE "C" text_pattern_ops) INCLUDE (id) WITH (fillfactor = 50) TABLESPACE rare_space WHERE id > 3;
CREATE INDEX "keys of a name that is longer than forty-eight bytes, number 1" ON keys (id, note);
CREATE INDEX "keys of a name that is longer than forty-eight bytes, number 2" ON keys (id, at);
CREATE INDEX keys_expression ON keys ((id + 1), (parent * 2));
ALTER INDEX keys_expression ALTER COLUMN 2 SET STATISTICS 77;
COMMENT ON INDEX keys_expression IS 'an expression';
ALTER INDEX keys_expression DEPENDS ON EXTENSION btree_gist;
ALTER TABLE keys CLUSTER ON keys_expression;
ALTER TABLE keys REPLICA IDENTITY USING INDEX keys_pkey;
ALTER TABLE keys ALTER COLUMN id SET STATISTICS 500, ALTER COLUMN id SET (n_distinct = -1, n_distinct_inherited = -0.5);
GRANT SELECT (id, note) ON keys TO "rare 'reader" WITH GRANT OPTION;
GRANT REFERENCES (id) ON keys TO PUBLIC;
CREATE STATISTICS keys_mcv (mcv, ndistinct) ON id, parent FROM keys;
COMMENT ON STATISTICS keys_mcv IS 'of two columns';
CREATE STATISTICS keys_on_expression ON (id % 10), (parent + 1) FROM keys;
ALTER STATISTICS keys_on_expression SET STATISTICS 99;

CREATE TABLE pairs (a integer REFERENCES keys (id), b integer, c smallint DEFAULT (1 + 1), tags integer[] DEFAULT '{}', PRIMARY KEY (a, b));
ALTER TABLE pairs ALTER COLUMN tags SET STORAGE EXTERNAL, ALTER COLUMN tags SET COMPRESSION pglz, ALTER COLUMN tags SET STATISTICS 50;
COMMENT ON COLUMN pairs.tags IS 'numbers of keys';
CREATE TABLE pair_notes (
	id serial PRIMARY KEY, a integer, b integer, note text,
	CONSTRAINT pair_notes_pair FOREIGN KEY (a, b) REFERENCES pairs MATCH FULL ON DELETE SET NULL (b),
	CONSTRAINT "pair's note" UNIQUE (a, note) DEFERRABLE INITIALLY DEFERRED
);
CREATE UNLOGGED TABLE "Quoted ""Table" ("Key's" smallserial PRIMARY KEY, "the key" integer CONSTRAINT "key's key" REFERENCES keys DEFERRABLE);
CREATE TABLE firsts (id serial PRIMARY KEY, second integer);
CREATE TABLE seconds (id integer PRIMARY KEY REFERENCES firsts, other bigint);
ALTER TABLE seconds ADD CONSTRAINT seconds_other FOREIGN KEY (other) REFERENCES firsts NOT VALID;
ALTER TABLE firsts ADD CONSTRAINT firsts_second FOREIGN KEY (second) REFERENCES seconds DEFERRABLE;
\if :is_18
ALTER TABLE keys ADD CONSTRAINT keys_not_enforced CHECK (id < 1000000000) NOT ENFORCED;
CREATE TABLE stays (
	room integer, id serial CONSTRAINT stays_with_id NOT NULL, at tstzrange,
	CONSTRAINT stays_pkey PRIMARY KEY (id, at WITHOUT OVERLAPS)
);
CREATE TABLE stay_notes (stay integer, at tstzrange, CONSTRAINT stay_notes_stay FOREIGN KEY (stay, PERIOD at) REFERENCES stays (id, PERIOD at));
INSERT INTO stays (room, at) VALUES (1, '[2026-01-01,2026-02-01)');
INSERT INTO stay_notes VALUES (1, '[2026-01-03,2026-01-05)');
\endif

-- children
CREATE TABLE kinds (id serial PRIMARY KEY, note text);
CREATE TABLE kinds_child (CONSTRAINT kinds_child_key UNIQUE (id), more text) INHERITS (kinds);
CREATE INDEX kinds_child_index ON kinds_child (id, more);
CREATE TABLE kinds_grandchild () INHERITS (kinds_child);
CREATE TABLE kind_notes (kind integer REFERENCES kinds_child (id), note text);

-- views, and what hangs on them
CREATE VIEW keys_view (key, note, parent) WITH (security_barrier, check_option = local) AS SELECT id, note, parent FROM keys WHERE id > 0;
ALTER VIEW keys_view RENAME COLUMN parent TO "the parent";
ALTER VIEW keys_view ALTER COLUMN note SET DEFAULT 'none';
COMMENT ON COLUMN keys_view."the parent" IS 'renamed';
REVOKE ALL ON keys_view FROM PUBLIC;
GRANT SELECT (key), UPDATE (note) ON keys_view TO "rare 'reader";
CREATE FUNCTION keys_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE RECURSIVE VIEW keys_path (id, path) AS SELECT id, ARRAY[id] FROM keys WHERE parent IS NULL UNION ALL SELECT k.id, p.path || k.id FROM keys_path p JOIN keys k ON k.parent = p.id;
CREATE TRIGGER keys_path_write INSTEAD OF INSERT ON keys_path FOR EACH ROW EXECUTE FUNCTION keys_write();
CREATE MATERIALIZED VIEW keys_kept WITH (fillfactor = 90, autovacuum_enabled = false, toast.autovacuum_vacuum_threshold = 7) TABLESPACE rare_space
	AS SELECT v.key, v.note, 1 + v.key AS next FROM keys_view AS v WITH NO DATA;
CREATE UNIQUE INDEX keys_kept_key ON keys_kept (key) WITH (fillfactor = 40) TABLESPACE rare_space;
CREATE INDEX keys_kept_part ON keys_kept (note) TABLESPACE rare_space WHERE key > 2;
CREATE STATISTICS keys_kept_pair ON key, note FROM keys_kept;
ALTER MATERIALIZED VIEW keys_kept CLUSTER ON keys_kept_key;
ALTER MATERIALIZED VIEW keys_kept ALTER COLUMN note SET STORAGE EXTERNAL, ALTER COLUMN note SET STATISTICS 44;
ALTER MATERIALIZED VIEW keys_kept DEPENDS ON EXTENSION btree_gist;
CREATE VIEW keys_again AS SELECT k.key, r.key AS view_key FROM keys_kept AS k JOIN keys_view AS r USING (key);
CREATE RULE keys_again_write AS ON UPDATE TO keys_again DO INSTEAD UPDATE keys SET note = 'again' WHERE id = OLD.key;
CREATE FUNCTION keys_like(k keys_view, VARIADIC more integer[] DEFAULT '{}') RETURNS SETOF keys_again LANGUAGE sql STABLE ROWS 5 SET search_path = rare
	AS 'SELECT a FROM rare.keys_again AS a WHERE a.key = ($1).key';
CREATE VIEW keys_liked AS SELECT l.key FROM keys_view AS v, keys_like(v) AS l;
CREATE FUNCTION count_keys(low integer DEFAULT 0) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER BEGIN ATOMIC SELECT count(*) FROM keys WHERE id > low; END;
COMMENT ON FUNCTION count_keys(integer) IS 'a body that is parsed';
ALTER FUNCTION count_keys(integer) DEPENDS ON EXTENSION btree_gist;
CREATE PROCEDURE empty_keys() LANGUAGE sql BEGIN ATOMIC DELETE FROM pair_notes WHERE a < 0; DELETE FROM keys WHERE id < 0; END;
CREATE PROCEDURE add_note() LANGUAGE sql BEGIN ATOMIC INSERT INTO pair_notes (note) VALUES ('x') ON CONFLICT ON CONSTRAINT pair_notes_pkey DO NOTHING; END;
CREATE VIEW key_notes AS SELECT k.*, count(*) AS pairs FROM keys AS k JOIN pairs AS p ON p.a = k.id GROUP BY k.id;
CREATE RULE key_notes_insert AS ON INSERT TO key_notes DO INSTEAD INSERT INTO pair_notes (note) SELECT DISTINCT NEW.note FROM key_notes ON CONFLICT ON CONSTRAINT pair_notes_pkey DO NOTHING;
CREATE VIEW counted AS SELECT count_keys() AS keys;

-- triggers, rules, policies, publications
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER of_id AFTER UPDATE OF id, note ON keys FOR EACH STATEMENT EXECUTE FUNCTION nothing('it''s', '1');
CREATE TRIGGER of_note AFTER UPDATE OF note ON keys FOR EACH ROW WHEN (OLD.id = NEW.id AND NEW.* IS DISTINCT FROM OLD.*) EXECUTE FUNCTION nothing();
ALTER TABLE keys ENABLE REPLICA TRIGGER of_note;
COMMENT ON TRIGGER of_note ON keys IS 'when';
ALTER TRIGGER of_note ON keys DEPENDS ON EXTENSION btree_gist;
CREATE CONSTRAINT TRIGGER checks AFTER INSERT ON keys FROM pairs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id > 5) EXECUTE FUNCTION nothing();
CREATE RULE keys_rule AS ON DELETE TO keys WHERE OLD.id = 1 DO ALSO DELETE FROM rare.pair_notes WHERE a = OLD.id;
ALTER TABLE keys DISABLE RULE keys_rule;
CREATE POLICY keys_all ON keys AS RESTRICTIVE FOR INSERT TO "rare 'reader", rare_owner WITH CHECK (id > (SELECT min(p.a) FROM pairs AS p));
CREATE POLICY keys_update ON keys FOR UPDATE TO CURRENT_USER USING (id = 1) WITH CHECK (parent IS NULL);
COMMENT ON POLICY keys_all ON keys IS 'restrictive';
CREATE PUBLICATION rare_feed FOR TABLE keys (id, note, parent) WHERE (id > 10), ONLY kinds_child WITH (publish = 'insert, delete');
INSERT INTO keys (parent, code, note) VALUES (NULL, 1, 'a'), (7, 2, 'b');
INSERT INTO pairs SELECT id, 1 FROM keys;
INSERT INTO pair_notes (a, b, note) SELECT a, b, 'x' FROM pairs;
INSERT INTO "Quoted ""Table" ("the key") SELECT id FROM keys;
INSERT INTO firsts DEFAULT VALUES; INSERT INTO seconds SELECT 1, 1; UPDATE firsts SET second = 1;
INSERT INTO kinds (note) VALUES ('a'); INSERT INTO kinds_child (note) VALUES ('b'); INSERT INTO kind_notes VALUES (2, 'x');

\if :{?offline}
-- partitions, generated columns, foreign tables
CREATE TABLE logs (id bigint GENERATED BY DEFAULT AS IDENTITY, key integer REFERENCES keys, at date NOT NULL, note text, PRIMARY KEY (id, at) WITH (fillfactor = 55)) PARTITION BY RANGE (at);
CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM (MINVALUE) TO ('2026-01-01') WITH (fillfactor = 66);
CREATE TABLE logs_2 PARTITION OF logs FOR VALUES FROM ('2026-01-01') TO (MAXVALUE) PARTITION BY RANGE (at);
CREATE TABLE logs_3 (note text, at date NOT NULL, key integer CONSTRAINT logs_3_own_key REFERENCES keys, id bigint NOT NULL);
COMMENT ON CONSTRAINT logs_3_own_key ON logs_3 IS 'of a partition';
CREATE INDEX logs_3_own_name ON logs_3 (key, ((key + 1)));
ALTER INDEX logs_3_own_name ALTER COLUMN 2 SET STATISTICS 33;
COMMENT ON INDEX logs_3_own_name IS 'of a partition';
ALTER TABLE logs_2 ATTACH PARTITION logs_3 DEFAULT;
CREATE INDEX logs_key ON logs (key, ((key + 1)));
CREATE TABLE log_notes (log bigint, at date, FOREIGN KEY (log, at) REFERENCES logs, of integer REFERENCES keys);
CREATE TRIGGER logs_when AFTER UPDATE ON logs FOR EACH ROW WHEN (NEW.key > 3) EXECUTE FUNCTION nothing();
ALTER TABLE logs_1 DISABLE TRIGGER logs_when;
INSERT INTO logs (key, at, note) VALUES (7, '2025-01-01', 'a'), (7, '2026-02-01', 'b');
INSERT INTO log_notes VALUES (1, '2025-01-01', 7);
CREATE TABLE made (
	id serial PRIMARY KEY, part text COLLATE "C" CONSTRAINT made_part NOT NULL GENERATED ALWAYS AS (id || '/' || 7) STORED, twice integer GENERATED ALWAYS AS (id * 2) STORED UNIQUE WITH (fillfactor = 35),
	CONSTRAINT made_check CHECK (twice > id)
);
ALTER TABLE made ALTER COLUMN part SET STORAGE EXTERNAL, ALTER COLUMN part SET STATISTICS 12;
COMMENT ON COLUMN made.part IS 'made of the key';
CREATE TABLE made_child (CONSTRAINT made_child_key UNIQUE (part), CONSTRAINT made_child_check CHECK (part <> '')) INHERITS (made);
ALTER TABLE made_child ALTER COLUMN part SET STATISTICS 12;
CREATE INDEX made_child_index ON made_child (twice) WHERE part > 'a';
GRANT SELECT (part) ON made TO "rare 'reader";
CREATE INDEX made_index ON made (part varchar_pattern_ops, twice) TABLESPACE rare_space WHERE twice > 1;
CREATE STATISTICS made_statistics ON part, twice FROM made;
COMMENT ON STATISTICS made_statistics IS 'of generated columns';
CREATE TABLE made_notes (twice integer REFERENCES made (twice) ON DELETE CASCADE);
CREATE VIEW made_view AS SELECT part FROM made;
INSERT INTO made DEFAULT VALUES; INSERT INTO made_notes VALUES (2);
RESET ROLE;
CREATE EXTENSION file_fdw;
CREATE SERVER rare_server FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE kinds_far (far text) INHERITS (kinds) SERVER rare_server OPTIONS (filename '/dev/null', format 'csv');
ALTER FOREIGN TABLE kinds_far OWNER TO rare_owner;
\endif
RESET ROLE; RESET search_path;
ANALYZE;
