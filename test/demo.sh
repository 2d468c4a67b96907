#!/bin/bash
# Build the extension, start a throw-away server with it, and show what it is
# for.  Runs as root or as a user with sudo; leaves nothing behind but the
# installed packages and the installed extension.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

leave()
{
	[ "$1" != 0 ] || return 0
	tail -n 40 "$work"/{step,server}.log 2>/dev/null || true
	say "the demonstration failed"
}

heading()
{
	printf '\n== %s\n' "$*"
}

# Show some SQL and what comes of it.
sql()
{
	local result

	say "$1"
	result=$(printf '%s\n' "$1" | "$bindir/psql" -X -q -v ON_ERROR_STOP=1 -P footer=off -f -)
	[ -z "$result" ] || say "$result"
}

say "== Building snowflake and starting a server in a temporary directory"
install_missing
make_workspace
build_extension >"$work/step.log" 2>&1
install_extension >>"$work/step.log" 2>&1
start_server
rm -f "$work/step.log"
say "$("$bindir/postgres" --version), shared_preload_libraries = 'snowflake', snowflake.node_id = 1"

heading "A shop: the keys are IDs; a plain bigint column can hold them, too"
sql "CREATE EXTENSION snowflake;
CREATE TABLE customers (id snowflake PRIMARY KEY DEFAULT snowflake_next(), name text NOT NULL);
CREATE TABLE orders (
    id         snowflake PRIMARY KEY DEFAULT snowflake_next(),
    customer   bigint NOT NULL REFERENCES customers,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE events (
    id         bigint PRIMARY KEY DEFAULT snowflake_next(),
    order_id   bigint NOT NULL REFERENCES orders,
    what       text NOT NULL
);
INSERT INTO customers (name) SELECT 'customer ' || n FROM generate_series(1, 100) n;"

heading "Eight connections place 4000 orders, each with an event, in 4000 transactions"
cat >"$work/order.sql" <<'SQL'
\set n random(1, 100)
WITH placed AS (INSERT INTO orders (customer) SELECT id FROM customers WHERE name = 'customer ' || :n RETURNING id)
INSERT INTO events (order_id, what) SELECT id, 'placed' FROM placed;
SQL
say "pgbench -c 8 -t 500 -f order.sql"
sed -n '2,$p' "$work/order.sql"
"$bindir/pgbench" -n -c 8 -j 2 -t 500 -f "$work/order.sql" >"$work/step.log" 2>&1
grep -E '^(number of transactions actually|tps)' "$work/step.log"
rm -f "$work/step.log"

heading "No ID occurs twice, in whatever table and from whatever connection"
sql "SELECT count(*) AS ids, count(DISTINCT id) AS distinct_ids
  FROM (SELECT id FROM customers UNION ALL SELECT id FROM orders
        UNION ALL SELECT id::snowflake FROM events) AS every_id;"

heading "An ID tells when and where it was made"
sql "SELECT id, @ id AS made_at, snowflake_node(id) AS node, snowflake_sequence(id) AS seq
  FROM orders ORDER BY id DESC LIMIT 3;
SELECT * FROM snowflake_decode((SELECT max(id) FROM orders));"

heading "ORDER BY id is ORDER BY created_at, as far as eight racing connections can tell"
sql "SELECT count(*) AS orders,
       count(*) FILTER (WHERE created_at < previous) AS in_another_order,
       coalesce(max(previous - created_at) FILTER (WHERE created_at < previous), '0') AS by_at_most,
       max(abs(extract(epoch FROM (@ id) - created_at)))::numeric(9,6) AS largest_difference_s
  FROM (SELECT id, created_at, lag(created_at) OVER (ORDER BY id) AS previous
          FROM orders) AS in_order_of_id;"

heading "So the primary key also finds rows by time"
sql "ANALYZE orders;
EXPLAIN (COSTS OFF) SELECT * FROM orders
  WHERE id >= now() - interval '10 ms';"

heading "The layout of these IDs"
sql "\\x on
SELECT * FROM snowflake_layout();"
