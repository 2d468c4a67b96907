#!/bin/bash
# sqlsmith against a server with the extension: random queries over tables with
# snowflakes in every role, as an ordinary user who owns these tables, and then
# as one who may also do what is restricted.  A crash, an internal error that
# comes from the extension, a keeper that is gone or a server that no longer
# mints is a failure.  The last line of the output is "N passed, N failed".
#
#   bash test/sqlsmith.sh                          5000 queries
#   bash test/sqlsmith.sh --queries 20000 --seed 7

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

queries=5000
seed=1
while [ $# -gt 0 ]; do
	case $1 in
		--queries) queries=$2 ;;
		--seed) seed=$2 ;;
		*) die "unknown option: $1" ;;
	esac
	shift 2
done

# One result.  $1: what, $2: true or the like
check()
{
	if [ "$2" = t ]; then
		passed=$((passed + 1))
		say "ok: $1"
	else
		failed=$((failed + 1))
		say "FAILED: $1"
	fi
}

sql()
{
	as_user "$bindir/psql" -XAtq -v ON_ERROR_STOP=1 "$@"
}

install_missing
if ! command -v sqlsmith >/dev/null; then
	apt_update_once
	say "apt-get install sqlsmith"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
		--no-install-recommends sqlsmith >/dev/null
fi
make_workspace
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
build_extension
install_extension >/dev/null

# Locations of errors tell ours from those of the server.
start_server "log_error_verbosity = verbose" "log_line_prefix = '%e '" \
	"max_connections = 20" "deadlock_timeout = 200ms" "track_functions = all"

# sqlsmith is run by a role without a right to break the server in the ways
# that a superuser may.  It calls no functions that return sets, hence views.
sql -d postgres <<'SQL'
CREATE ROLE smith LOGIN;
CREATE DATABASE smith OWNER smith;
SQL
sql -d smith -c 'CREATE EXTENSION snowflake'
sql -d smith -U smith <<'SQL'
CREATE TABLE customers (
	id snowflake PRIMARY KEY DEFAULT snowflake_next(),
	name text,
	code text GENERATED ALWAYS AS (snowflake_encode(id, 'base58')) STORED
);
CREATE TABLE orders (
	id snowflake PRIMARY KEY DEFAULT snowflake_next(),
	customer snowflake REFERENCES customers,
	previous bigint REFERENCES orders,
	placed timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'twitter')) STORED,
	node integer GENERATED ALWAYS AS (snowflake_node(id, 'twitter')) STORED,
	valid tstzrange,
	related snowflake[],
	amount numeric
);
CREATE INDEX ON orders (customer);
CREATE INDEX ON orders USING hash (previous);
CREATE INDEX ON orders USING brin (id);
CREATE TABLE events (
	id snowflake DEFAULT snowflake_next(),
	at timestamptz DEFAULT now(),
	kind integer,
	PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE TABLE events_old PARTITION OF events
	FOR VALUES FROM ('0') TO ('1000000000000000000');
CREATE TABLE events_new PARTITION OF events DEFAULT;
CREATE TABLE spread (id snowflake DEFAULT snowflake_next(), n integer)
	PARTITION BY HASH (id);
CREATE TABLE spread_0 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE spread_1 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE legacy (id bigserial PRIMARY KEY, customer bigint REFERENCES customers, n smallint);
CREATE TABLE texts (format text, layout text, code text);
CREATE DOMAIN order_id AS snowflake CHECK (VALUE >= 0);
CREATE TABLE parcels (id order_id, contents snowflake, at timestamptz);

CREATE VIEW layouts AS SELECT * FROM snowflake_layouts();
CREATE VIEW layout AS SELECT * FROM snowflake_layout();
CREATE VIEW status AS SELECT * FROM snowflake_status();
CREATE VIEW batch AS SELECT id FROM snowflake_next_batch(100) AS id;
CREATE VIEW decoded AS
	SELECT id, @ id AS at, id -> 'worker' AS worker, d.*,
		snowflake_node(id) AS its_node, snowflake_sequence(id, 'twitter') AS its_sequence,
		snowflake_field(id, 'time') AS its_time,
		make_snowflake(placed, d.node, d.sequence) AS made,
		snowflake_lower_bound(placed) AS first, snowflake_upper_bound(placed, 'twitter') AS last,
		snowflake_encode(id, 'base62') AS code,
		snowflake_parse(snowflake_encode(id, 'hex'), 'hex') AS parsed,
		id < placed AS before, id <@ valid AS during, id = previous AS same, id::bigint AS number
	FROM orders, snowflake_decode(id) AS d;
CREATE VIEW extremes AS
	SELECT customer, min(id), max(id), count(DISTINCT previous::snowflake) FROM orders GROUP BY customer;
CREATE VIEW recent AS
	SELECT * FROM events WHERE id >= now() - interval '1 hour';
CREATE VIEW valid_now AS
	SELECT o.*, e.kind FROM orders o JOIN events e ON e.id <@ o.valid;

INSERT INTO customers (name) SELECT 'customer ' || g FROM generate_series(1, 200) g;
INSERT INTO orders (customer, valid, amount)
	SELECT id, tstzrange(now() - interval '1 day' * n, now() + interval '1 hour'), n
	FROM (SELECT id, row_number() OVER () AS n FROM customers) c;
UPDATE orders SET previous = (SELECT min(id) FROM orders),
	related = ARRAY(SELECT id FROM orders LIMIT 3);
INSERT INTO events (kind) SELECT g % 7 FROM generate_series(1, 2000) g;
INSERT INTO events (id, kind) SELECT make_snowflake('2011-01-01'::timestamptz + g * interval '1 day', 1, g), g
	FROM generate_series(1, 500) g;
INSERT INTO spread (n) SELECT g FROM generate_series(1, 500) g;
INSERT INTO legacy (customer, n) SELECT id, 1 FROM customers;
INSERT INTO texts
	SELECT f, l.name, snowflake_encode(c.id, f)
	FROM unnest('{base32,base32z,base36,base58,base58flickr,base62,hex}'::text[]) f,
		snowflake_layouts() l, (SELECT id FROM customers LIMIT 5) c;
INSERT INTO parcels SELECT id, previous::snowflake, placed FROM orders;
ANALYZE customers, orders, events, spread, legacy, texts, parcels;
SQL

# The server has thousands of functions, so ours would be called rarely.  What
# sqlsmith takes for pg_proc with this search_path has few others.
sql -d smith <<'SQL'
CREATE SCHEMA narrow;
CREATE VIEW narrow.pg_proc AS
	SELECT * FROM pg_catalog.pg_proc p
	WHERE p.oid::bigint % 20 = 0
		AND NOT EXISTS (SELECT FROM pg_type t
			WHERE t.typtype = 'p' AND t.oid = ANY (p.proargtypes || p.prorettype))
		OR EXISTS (SELECT FROM pg_depend d
			WHERE d.objid = p.oid AND d.classid = 'pg_catalog.pg_proc'::regclass
				AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass);
GRANT USAGE ON SCHEMA narrow TO smith;
GRANT SELECT ON narrow.pg_proc TO smith;
SQL
narrow="-c search_path=narrow,pg_catalog,public"

# $1: a name, $2: how many queries, $3: the session's options
smith()
{
	local status=0 ran

	# one query's limit is a second, which some of them lift
	as_user timeout "$((600 + $2))" sqlsmith \
		--target="host=$work port=$PGPORT dbname=smith user=smith options='${3:-}'" \
		--exclude-catalog --seed="$seed" --max-queries="$2" --verbose >"$work/$1.out" 2>&1 || status=$?
	ran=$(grep -o '^queries: [0-9]*' "$work/$1.out" | tail -n 1 | cut -d ' ' -f 2) || true
	say "$1: at least ${ran:-0} of $2 queries, exit status $status"
	[ "$status" = 0 ] || tail -n 5 "$work/$1.out"
	check "sqlsmith has run to its end ($1)" "$([ "$status" = 0 ] && echo t)"
}

keeper()
{
	sql -d postgres -c 'SELECT keeper_pid FROM snowflake_status()'
}

first=$(sql -d smith -c 'SELECT snowflake_next()')
keeper=$(keeper)
smith "ordinary user" "$((queries / 2))"
smith "ordinary user, mostly our functions" "$((queries - queries / 2))" "$narrow"
check "the keeper has not been restarted" "$([ "$(keeper)" = "$keeper" ] && echo t)"
check "the gate is open" "$(sql -d smith -c "SELECT gate = 'open' FROM snowflake_status()")"
check "minting goes on, above the first" "$(sql -d smith -c "SELECT snowflake_next() > $first")"

# What is restricted can, for one, take the generator far ahead of the clock, so
# nothing is expected of minting after this.
sql -d smith <<'SQL'
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT p.oid
		FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid
			AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		WHERE d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake')
	LOOP
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO smith', f);
	END LOOP;
END
$$;
SQL
smith "with every function" "$((queries / 4))" "$narrow"
check "the keeper has not been restarted by that" "$([ "$(keeper)" = "$keeper" ] && echo t)"

say "the extension's functions: $(sql -d smith <<'SQL'
SELECT count(*) FILTER (WHERE calls > 0) || ' of ' || count(*) || ' were called, '
	|| sum(calls) || ' times, without those that the planner replaces'
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid
	LEFT JOIN pg_stat_user_functions f ON f.funcid = p.oid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake')
	AND 'internal'::regtype <> ALL (p.proargtypes)
SQL
)"
say "--- statements that failed, by SQLSTATE"
sed -n 's/^\([0-9A-Z]\{5\}\) ERROR:  .*/\1/p' "$work/server.log" | sort | uniq -c | sort -rn | head -n 40

crashes=$(grep -cE 'PANIC:|TRAP:|terminated by signal|terminating any other active|exited with exit code [^1]' \
	"$work/server.log") || true
check "no crash" "$([ "$crashes" = 0 ] && echo t)"
[ "$crashes" = 0 ] || grep -E -A 3 'PANIC:|TRAP:|terminated by signal' "$work/server.log" | head -n 20

# Internal errors, each with the place in the source that raised it.
awk '/^XX[0-9]+ (ERROR|FATAL)/ { error = $0 }
	/^XX[0-9]+ LOCATION:/ { sub(/^.*LOCATION: */, ""); print error " (" $0 ")" }' \
	"$work/server.log" | sed 's/[0-9]\{2,\}/N/g; s/"[^"]*"/"..."/g' |
	sort | uniq -c | sort -rn >"$work/internal"
if [ -s "$work/internal" ]; then
	say "--- internal errors"
	cat "$work/internal"
fi
ours=$(cd "$root/src" && printf '|%s' *.c)
check "no internal error raised by the extension" \
	"$(grep -qE ", (${ours#|}):" "$work/internal" || echo t)"
