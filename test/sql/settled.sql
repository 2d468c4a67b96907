-- snowflake_frontier(): how far the statement that asks may read

CREATE TABLE tailed (id snowflake PRIMARY KEY, what text);
CREATE VIEW settled AS SELECT * FROM tailed WHERE id <= snowflake_frontier();
INSERT INTO tailed SELECT snowflake_next(), 'row ' || n FROM generate_series(1, 5) n;
SELECT what FROM settled ORDER BY id;
SELECT what FROM tailed WHERE id <= snowflake_frontier() ORDER BY id DESC LIMIT 1;
SELECT what FROM tailed WHERE id <= (SELECT snowflake_frontier()) ORDER BY id DESC LIMIT 1;

-- what lies above is left out, whoever made it
INSERT INTO tailed VALUES (snowflake_lower_bound(now() + interval '1 year'), 'not minted yet');
SELECT what FROM settled ORDER BY id DESC LIMIT 1;
DELETE FROM tailed WHERE what = 'not minted yet';
-- and so is what this transaction has minted, until it is committed
BEGIN;
INSERT INTO tailed VALUES (snowflake_next(), 'own');
SELECT what FROM settled ORDER BY id DESC LIMIT 1;
SELECT what FROM tailed ORDER BY id DESC LIMIT 1;
COMMIT;
SELECT what FROM settled ORDER BY id DESC LIMIT 1;

-- a snapshot has one frontier, and another one has another
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake_frontier() AS frontier \gset
INSERT INTO tailed VALUES (snowflake_next(), 'later');
SELECT snowflake_frontier() = :frontier AS same;
SAVEPOINT a;
SELECT snowflake_frontier() = :frontier AS same;
ROLLBACK TO a;
SELECT snowflake_frontier() = :frontier AS same;
COMMIT;
SELECT snowflake_frontier() > :frontier AS larger;
-- who asks first in a savepoint that is rolled back, and then again
BEGIN;
SAVEPOINT a;
SELECT snowflake_frontier() > :frontier AS larger;
ROLLBACK TO a;
SELECT snowflake_frontier() > :frontier AS larger;
COMMIT;
SELECT count(DISTINCT snowflake_frontier()) FROM tailed;
BEGIN READ ONLY;
SELECT what FROM settled ORDER BY id DESC LIMIT 1;
ROLLBACK;
DECLARE held CURSOR WITH HOLD FOR SELECT what FROM settled ORDER BY id DESC;
FETCH held;
CLOSE held;

-- an index would keep what changes: core refuses
\set VERBOSITY sqlstate
CREATE INDEX ON tailed ((snowflake_frontier()));
\set VERBOSITY default
CREATE MATERIALIZED VIEW copy AS SELECT * FROM settled;
SELECT count(*) FROM copy;
DROP MATERIALIZED VIEW copy;

-- rights on the rows are those of whoever reads; the frontier is for everybody
CREATE ROLE snowflake_tail_reader;
SET ROLE snowflake_tail_reader;
SELECT count(*) FROM settled;
SELECT snowflake_frontier() >= :frontier AS told;
RESET ROLE;
DROP ROLE snowflake_tail_reader;

DROP VIEW settled;
DROP TABLE tailed;
