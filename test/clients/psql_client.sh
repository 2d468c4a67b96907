#!/bin/bash
# psql: variables, prepared statements, COPY in its text and binary formats.
# To be run by run.sh.

set -euo pipefail

count=0
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

# The output of psql commands, which come from standard input, up to the first
# error, of which the SQLSTATE is shown.
run()
{
	{ psql -X -A -t -q -v ON_ERROR_STOP=1 -v VERBOSITY=sqlstate -v files="$files" -f - 2>&1 || true; } |
		sed 's/^psql:.*ERROR: *//'
}

is()
{
	count=$((count + 1))
	if [ "$1" = "$2" ]; then
		printf 'ok %d - %s\n' "$count" "$3"
	else
		printf 'not ok %d - %s\n# got: %s\n# expected: %s\n' "$count" "$3" "$1" "$2"
	fi
}

printf '# client: %s\n' "$(psql --version)"

run <<'SQL'
CREATE TABLE orders (
    id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
    ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
    item text
);
SQL

is "$(run <<'SQL'
INSERT INTO orders (item) VALUES ('default') RETURNING id, ref \gset
SELECT pg_typeof(id), pg_typeof(ref), ref > id FROM orders WHERE id = :id;
SQL
)" 'snowflake|bigint|t' 'both columns get an ID by default'

is "$(run <<'SQL'
SELECT id FROM orders WHERE item = 'default' \gset
SELECT item FROM orders WHERE id = :id;
SELECT item FROM orders WHERE id = :'id';
SELECT item FROM orders WHERE id = ANY (ARRAY[5, :id]);
SELECT item FROM orders WHERE id = ANY (:'id');
SQL
)" $'default\ndefault\ndefault\n22P02' 'an ID in a variable filters, quoted or not'

is "$(run <<'SQL'
SELECT now() - interval '1 hour' AS since \gset
SELECT count(*) FROM orders WHERE id >= :'since'::timestamptz;
SELECT count(*) FROM orders WHERE id >= snowflake_lower_bound(:'since');
SELECT count(*) FROM orders WHERE ref >= snowflake_lower_bound(:'since');
SELECT count(*) FROM orders WHERE id < :'since'::timestamptz;
SELECT count(*) FROM orders WHERE id >= :'since';
SQL
)" $'1\n1\n1\n0\n22P02' 'a time filters, if it is said to be a time'

is "$(run <<'SQL'
INSERT INTO orders VALUES (9007199254740993, 9007199254740993, 'explicit');
INSERT INTO orders VALUES ('9223372036854775807', '9223372036854775807', 'largest');
SELECT id, ref, item FROM orders WHERE item <> 'default' ORDER BY id;
INSERT INTO orders VALUES (-1, -1, 'negative');
SQL
)" $'9007199254740993|9007199254740993|explicit\n9223372036854775807|9223372036854775807|largest\n22003' \
	'explicit IDs beyond 2^53 and up to 2^63 - 1 are exact, a negative one is refused'

is "$(run <<'SQL'
PREPARE by_id(snowflake) AS SELECT item FROM orders WHERE id = $1;
PREPARE by_number(bigint) AS SELECT item FROM orders WHERE id = $1;
PREPARE by_list(bigint[]) AS SELECT count(*) FROM orders WHERE id = ANY ($1);
PREPARE by_time(timestamptz) AS SELECT count(*) FROM orders WHERE id <= $1;
PREPARE mint(text) AS INSERT INTO orders (item) VALUES ($1) RETURNING id > '9007199254740993';
EXECUTE by_id('9007199254740993');
EXECUTE by_number(9007199254740993);
EXECUTE by_list('{5,9007199254740993,9223372036854775807}');
EXECUTE by_time(now() + interval '1 hour');
EXECUTE mint('prepared');
EXECUTE mint('prepared again');
SQL
)" $'explicit\nexplicit\n2\n2\nt\nt' 'prepared statements take IDs, lists of IDs and times'

is "$(run <<'SQL'
PREPARE equal AS SELECT FROM orders WHERE id = $1;
PREPARE less AS SELECT FROM orders WHERE id < $1;
PREPARE anything AS SELECT FROM orders WHERE id = ANY ($1);
PREPARE list AS SELECT FROM orders WHERE id IN ($1, $2);
PREPARE value AS INSERT INTO orders VALUES ($1, $2);
SELECT parameter_types FROM pg_prepared_statements
WHERE name IN ('equal', 'less', 'anything', 'list', 'value') ORDER BY name;
SQL
)" $'{bigint[]}\n{bigint}\n{bigint}\n{snowflake,snowflake}\n{snowflake,bigint}' \
	'a parameter of open type is a bigint, but a snowflake in IN with several and as a value'

is "$(run <<'SQL'
SELECT string_agg(n::text, ', ') AS many FROM generate_series(9007199254739994, 9007199254740993) n \gset
SELECT item FROM orders WHERE id IN (:many);
SELECT item FROM orders WHERE id < 9223372036854775807 ORDER BY id DESC LIMIT 1;
SELECT pg_typeof(max(id)), max(id) FROM orders;
SQL
)" $'explicit\nprepared again\nbigint|9223372036854775807' 'a list of 1000, the next page, the largest, which is a bigint'

is "$(run <<'SQL' | grep -o 'Index Cond: (.* [<>]=\?'
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
PREPARE by_time(timestamptz) AS SELECT item FROM orders WHERE id >= $1;
PREPARE by_bound(timestamptz) AS SELECT item FROM orders WHERE id >= snowflake_lower_bound($1);
PREPARE bigint_by_bound(timestamptz) AS SELECT item FROM orders WHERE ref >= snowflake_lower_bound($1);
EXPLAIN (COSTS OFF) EXECUTE by_time(now());
EXPLAIN (COSTS OFF) EXECUTE by_bound(now());
EXPLAIN (COSTS OFF) EXECUTE bigint_by_bound(now());
SQL
)" $'Index Cond: ((id)::bigint >\nIndex Cond: ((id)::bigint >=\nIndex Cond: (ref >=' \
	'a time as parameter is a range of the index'

run <<'SQL'
\cd :files
\copy (SELECT id FROM orders WHERE item = 'explicit') TO 'snowflake' (FORMAT binary)
\copy (SELECT ref FROM orders WHERE item = 'explicit') TO 'bigint' (FORMAT binary)
\copy orders TO 'orders.binary' (FORMAT binary)
\copy orders TO 'orders.csv' (FORMAT csv)
CREATE TABLE from_binary (LIKE orders INCLUDING ALL);
CREATE TABLE from_csv (LIKE orders INCLUDING ALL);
\copy from_binary FROM 'orders.binary' (FORMAT binary)
\copy from_csv FROM 'orders.csv' (FORMAT csv)
\copy from_csv (item) FROM PROGRAM 'echo copied'
SQL
is "$(cmp "$files/snowflake" "$files/bigint" 2>&1)" '' 'COPY BINARY has the same bytes for snowflake and bigint'
is "$(run <<'SQL'
SELECT count(*) FROM orders NATURAL JOIN from_binary;
SELECT count(*) FROM orders NATURAL JOIN from_csv;
SELECT count(*) FROM from_csv WHERE item = 'copied' AND id >= now() - interval '1 hour';
SQL
)" $'5\n5\n1' 'COPY loads IDs, as text and as binary, and mints those that are missing'

is "$(run <<'SQL'
SELECT to_json(id), to_json(ref) FROM orders WHERE item = 'explicit';
SQL
)" '"9007199254740993"|9007199254740993' 'JSON has a string for snowflake, a number for bigint'

is "$(run <<'SQL' | sed 's/[0-9]\{16,\}/N/g'
\cd :files
INSERT INTO orders (item) VALUES ('tea') RETURNING id \gset
SELECT * FROM orders WHERE id = :id;
\copy orders TO 'orders.bin' (FORMAT binary)
PREPARE by_time AS
SELECT * FROM orders WHERE id >= $1::timestamptz;
PREPARE by_bound AS
SELECT * FROM orders WHERE id >= snowflake_lower_bound($1);
EXECUTE by_time(now());
EXECUTE by_bound(now());
SQL
)" $'N|N|tea\nN|N|largest\nN|N|largest' 'a row of its own, and those after now'
is "$(head -c 6 "$files/orders.bin")" PGCOPY 'COPY BINARY to a file'

printf '1..%d\n' "$count"
