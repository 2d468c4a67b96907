"""Parts decode, range and shapes: queries of tables with such keys."""

import contextlib
import pathlib
import statistics

from common import in_turns, progress
from report import Section, Target, number, ratios, spread, table


# Parts: decode and range

def decode(bench):
    progress("decode")
    rows = bench.rows(200_000)
    bench.main.psql(f"""
        CREATE TABLE bench_ids AS SELECT snowflake_next() AS id FROM generate_series(1, {rows});
        CREATE TABLE bench_bigints AS SELECT id::bigint FROM bench_ids;
        VACUUM ANALYZE bench_ids, bench_bigints""")
    epoch_ms = 1288834974657
    shifts = {"numeric": f"to_timestamp(((id >> 22) + {epoch_ms}) / 1000.0)",
              "float": f"to_timestamp(((id >> 22) + {epoch_ms})::float8 / 1000)",
              "interval": f"timestamptz 'epoch' + ((id >> 22) + {epoch_ms}) * interval '1 ms'"}
    subjects = {"bench_ids": ["snowflake_timestamp(id)", "@@ id", "id"], "bench_bigints": ["id", *shifts.values()]}

    def measure(subject):
        table_name, expression = subject
        transactions, seconds = bench.main.pgbench(f"SELECT count({expression}) FROM {table_name}", 1, 1)
        return seconds / transactions / rows * 1e9
    samples = in_turns(bench.few(5), [(name, x) for name, list_ in subjects.items() for x in list_], measure)
    numeric = samples["bench_bigints", shifts["numeric"]]
    targets = []
    for expression in ("snowflake_timestamp(id)", "@@ id"):
        for name, shift in shifts.items():
            targets.append(Target(f"time of `{expression}` over the shift by hand, {name}", "≤", 1.5,
                                  ratios(samples["bench_ids", expression], samples["bench_bigints", shift])))
    text = (f"`SELECT count(…) FROM` a table of {rows:,} rows in shared buffers, 1 connection. With a plain `id` it is "
            "the scan. By hand there are three ways to write the division by 1000: `/ 1000.0`, the usual one, is numeric "
            "arithmetic; double precision is faster and, at times, a microsecond off; an interval has no division.\n\n"
            + table(["expression", "column", "ns per row", "over `/ 1000.0`"],
                    [[f"`{x}`", "snowflake" if name == "bench_ids" else "bigint", spread(samples[name, x]),
                      spread(ratios(samples[name, x], numeric))] for name, x in samples]))
    return Section("Decoding", text, targets)


def time_range(bench):
    progress("range")
    script = (pathlib.Path(__file__).parent / "created_at.sql").read_text(encoding="ascii")
    rows = bench.main.psql(script)
    by_id, by_time = ([int(x) for x in row[1:]] for row in rows)
    header = ["table", "heap, MB", "key, MB", "created_at index, MB", "buffers for the rows of an hour"]
    cells = [[row[0]] + [number(int(x) / 1e6) for x in row[1:4]] + [row[4]] for row in rows]
    text = ("1,000,000 rows of a year: see `test/bench/created_at.sql`. Counts, not times, hence one round.\n\n"
            + table(header, cells)
            + f"\nHeap and indexes together take {sum(by_id[:3]) / sum(by_time[:3]):.2f} times the space.\n")
    hour_rows = bench.rows(20_000_000)
    hours = bench.main.psql(f"\\set rows {hour_rows}\n"
                            + (pathlib.Path(__file__).parent / "timefilter.sql").read_text(encoding="utf-8"))
    text += (f"\nRows of {hour_rows:,} of a year by the forms in which people ask for them, planned and executed, in ms, the median of 101 "
             "rounds in turns: of a range of the ID that is written with constants, of a view's `created_at` that is decoded, and of a column "
             "with an index of its own. See `test/bench/timefilter.sql`.\n\n"
             + table(["rows", "form", "number", "`id`, constants", "decoded", "over constants", "a column"],
                     [[row[0], f"`{row[1]}`", *row[2:]] for row in hours]))
    return Section("Time ranges by ID, without a created_at index", text, [], [
        ["Is a `created_at` column needed?", f"no: without it heap and indexes take {sum(by_id[:3]) / sum(by_time[:3]):.2f} times "
         f"the space, and the rows of an hour are read from {by_id[3]} buffers, with it from {by_time[3]}"]])


# Part: shapes

NO_INDEX = "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;"
HASH_JOIN = "SET enable_mergejoin = off; SET enable_nestloop = off;"
MERGE_JOIN = "SET enable_hashjoin = off; SET enable_nestloop = off;"
NESTED_LOOP = "SET enable_hashjoin = off; SET enable_mergejoin = off;"
HASH = "SET enable_sort = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;"

# What an application asks.  {t}: the table; {p}: the same, partitioned; {lines}: a table with a foreign key of the same
# type, {other_lines}: of bigint; {ends}: the smallest and the largest; {one}, {in10}, {any10}, …, {new}: IDs; {hour}, {day}, {week},
# {range}: conditions, {at}: an expression for a time.  PREPARED: the statement is planned once.  A shape that uses what a key does not have is left out.
PREPARED = "PREPARE q_{k} AS "
SHAPES = {                      # settings, query
    "one row by its key": ("", "SELECT v FROM {t} WHERE id = {one}"),
    "one row by its key, prepared": (PREPARED + "SELECT v FROM {t} WHERE id = $1", "EXECUTE q_{k}({one})"),
    "10 literals in `IN`": ("", "SELECT v FROM {t} WHERE id IN ({in10})"),
    "100 literals in `IN`": ("", "SELECT v FROM {t} WHERE id IN ({in100})"),
    "1000 literals in `IN`": ("", "SELECT v FROM {t} WHERE id IN ({in1000})"),
    "1000 literals in `NOT IN`, scan": (NO_INDEX, "SELECT count(*) FROM {t} WHERE id NOT IN ({in1000})"),
    "`= ANY`, 10 IDs": ("", "SELECT v FROM {t} WHERE id = ANY ({any10})"),
    "`= ANY`, 100 IDs": ("", "SELECT v FROM {t} WHERE id = ANY ({any100})"),
    "`= ANY`, 1000 IDs": ("", "SELECT v FROM {t} WHERE id = ANY ({any1000})"),
    "`= ANY`, 100 IDs, prepared": (PREPARED + "SELECT v FROM {t} WHERE id = ANY ($1)", "EXECUTE q_{k}({any100})"),
    "`= ANY`, 1000 IDs, scan": (NO_INDEX, "SELECT count(*) FROM {t} WHERE id = ANY ({any1000})"),
    "page of 20 before an ID": ("", "SELECT id, v FROM {t} WHERE id < {one} ORDER BY id DESC LIMIT 20"),
    "page of 20 before an ID, prepared": (
        PREPARED + "SELECT id, v FROM {t} WHERE id < $1 ORDER BY id DESC LIMIT 20", "EXECUTE q_{k}({one})"),
    "rows of an hour": ("", "SELECT count(v) FROM {t} WHERE {hour}"),
    "rows of an hour, prepared": (PREPARED + "SELECT count(v) FROM {t} WHERE {range}", "EXECUTE q_{k}({from}, {to})"),
    "rows of a week": ("", "SELECT count(v) FROM {t} WHERE {week}"),
    "count by hour, a week": ("", "SELECT date_trunc('hour', {at}), count(*) FROM {t} WHERE {week} GROUP BY 1"),
    "count by hour, all": ("", "SELECT date_trunc('hour', {at}), count(*) FROM {t} GROUP BY 1"),
    "join of a day's rows with a foreign key, nested loop": (
        NESTED_LOOP, "SELECT count(n) FROM {t} JOIN {lines} ON order_id = id WHERE {day}"),
    "the same, of `bigint`": (NESTED_LOOP, "SELECT count(n) FROM {t} JOIN {other_lines} ON order_id = id WHERE {day}"),
    "join with a foreign key, hash": (HASH_JOIN, "SELECT count(n) FROM {t} JOIN {lines} ON order_id = id"),
    "the same, of `bigint`, hash": (HASH_JOIN, "SELECT count(n) FROM {t} JOIN {other_lines} ON order_id = id"),
    "join with a foreign key, merge": (MERGE_JOIN, "SELECT count(n) FROM {t} JOIN {lines} ON order_id = id"),
    "the same, of `bigint`, merge": (MERGE_JOIN, "SELECT count(n) FROM {t} JOIN {other_lines} ON order_id = id"),
    "`min` and `max`": ("", "SELECT {ends} FROM {t}"),
    "`min` and `max`, prepared": (PREPARED + "SELECT {ends} FROM {t}", "EXECUTE q_{k}"),
    "newest row by `ORDER BY`": ("", "SELECT id FROM {t} ORDER BY id DESC LIMIT 1"),
    "`ORDER BY`, sort": (NO_INDEX, "SELECT count(*) FROM (SELECT id, v FROM {t} ORDER BY id OFFSET 0) q"),
    "1000 rows as JSON": ("", "SELECT json_agg(q) FROM (SELECT id, v FROM {t} ORDER BY id DESC LIMIT 1000) q"),
    "`DISTINCT`, hash": (HASH, "SELECT count(*) FROM (SELECT DISTINCT order_id FROM {lines} OFFSET 0) q"),
    "`GROUP BY`, hash": (HASH, "SELECT count(*) FROM (SELECT order_id, count(*) FROM {lines} GROUP BY 1 OFFSET 0) q"),
    "upsert of 100 rows, half of them new": (
        "", "INSERT INTO {t} (id, v) VALUES {new} ON CONFLICT (id) DO UPDATE SET v = excluded.v"),
    "delete of a day": ("", "DELETE FROM {t} WHERE {day}"),
    "by month: one row": ("", "SELECT v FROM {p} WHERE id = {one}"),
    "by month: one row, prepared": (PREPARED + "SELECT v FROM {p} WHERE id = $1", "EXECUTE q_{k}({one})"),
    "by month: 100 literals in `IN`": ("", "SELECT v FROM {p} WHERE id IN ({in100})"),
    "by month: newest 20": ("", "SELECT id, v FROM {p} ORDER BY id DESC LIMIT 20"),
    "by month: rows of a day": ("", "SELECT count(v) FROM {p} WHERE {day}")}

# Why a snowflake key takes longer than 1.05 times what a bigint key takes, as EXPLAIN and perf show it.
PLANNING = "planning, some 2 µs for each comparison with a time, which is made into one of `bigint` first"
DECODING = "the time of each row is worked out of its ID, some 20 ns"
REASONS = {
    "rows of an hour": PLANNING,
    "rows of an hour, prepared": PLANNING + ". It does so each time, since the range is estimated from the parameters",
    "count by hour, a week": DECODING,
    "count by hour, all": DECODING,
    "1000 rows as JSON": "a snowflake is a string in JSON, and the function that makes it is looked up for each value, as that of "
                         "any type but core's",
    "`min` and `max`": "parsing, some 5 µs for each call: no aggregate takes a snowflake itself, so the parser weighs all of that "
                       "name; then as prepared",
    "`min` and `max`, prepared": "from PostgreSQL 17 on the planner knows that a key is never NULL, but not of one that is read as "
                                 "`bigint`, so the index is asked for it: some 2 µs for each call"}


def make_tables(bench, rows):
    """Tables of each type of key, with the same rows of half a year in the order of their time; {key: fields of SHAPES}."""
    server = bench.main
    step = f"interval '{180 * 86400 // rows} s'"
    ordered = bench.version >= 18               # are the UUIDs?
    values = {"bigint": "id::bigint", "snowflake": "id",
              "uuid": "uuidv7(at - clock_timestamp())" if ordered else "gen_random_uuid()"}
    bounds = {"bigint": "snowflake_lower_bound({})", "snowflake": "snowflake_lower_bound({})",
              "uuid": "rpad(lpad(to_hex((extract(epoch FROM {}) * 1000)::bigint), 12, '0'), 32, '0')::uuid"}
    server.psql(f"""
        CREATE TABLE bench_rows AS
            SELECT g AS v, at, make_snowflake(at, 1, 1) AS id
            FROM generate_series(1, {rows}) g, LATERAL (SELECT timestamptz '2026-01-01' + g * {step} AS at) a""")
    for key, value in values.items():
        server.psql(f"""
            CREATE TABLE bench_{key} (id {key} PRIMARY KEY, created_at timestamptz, v integer);
            INSERT INTO bench_{key} SELECT {value}, at, v FROM bench_rows ORDER BY v;
            CREATE TABLE bench_{key}_lines (order_id {key}, n integer);
            INSERT INTO bench_{key}_lines SELECT id, v FROM bench_{key} ORDER BY v / 100, hashint4(v);
            CREATE INDEX ON bench_{key}_lines (order_id);""")
        if key != "snowflake":
            server.psql(f"CREATE INDEX ON bench_{key} (created_at)")
        if key != "uuid" or ordered:
            low, high = (bounds[key].format(m) for m in ("m", "m + interval '1 month'"))
            server.psql(f"""
                CREATE TABLE bench_{key}_by_month (LIKE bench_{key} INCLUDING ALL) PARTITION BY RANGE (id);
                SELECT format('CREATE TABLE bench_{key}_%s PARTITION OF bench_{key}_by_month FOR VALUES FROM (%L) TO (%L)',
                              to_char(m, 'MM'), {low}, {high})
                FROM generate_series(timestamptz '2026-01-01', '2026-07-01', '1 month') m
                \\gexec
                INSERT INTO bench_{key}_by_month SELECT * FROM bench_{key}""")
    server.psql("VACUUM ANALYZE")

    def condition(what, end):
        return f"{what} >= timestamptz '2026-04-01 12:00' AND {what} < timestamptz '{end}'"
    fields = {}
    for key in values:
        quote = "'" if key == "uuid" else ""
        ids = [quote + row[0] + quote for row in server.psql(
            f"SELECT id FROM bench_{key} WHERE v % {rows // 1000} = 0 ORDER BY hashint4(v) LIMIT 1000")]
        # IDs that no row has: the last bits of those that it has, changed
        unused = [f"{i[:-5]}0000'" if quote else str(int(i) + 1) for i in ids[:50]]
        time = "id" if key == "snowflake" else "created_at"
        fields[key] = {
            "k": key, "t": f"bench_{key}", "lines": f"bench_{key}_lines", "one": ids[0],
            "new": ", ".join(f"({i}, 1)" for i in ids[50:100] + unused),
            "at": "id::timestamptz" if key == "snowflake" else "created_at",
            "hour": condition(time, "2026-04-01 13:00"), "day": condition(time, "2026-04-02 12:00"),
            "week": condition(time, "2026-04-08 12:00"),
            "range": f"{time} >= $1::timestamptz AND {time} < $2::timestamptz", "from": "'2026-04-01 12:00'", "to": "'2026-04-01 13:00'",
            **{f"in{n}": ", ".join(ids[:n]) for n in (10, 100, 1000)},
            **{f"any{n}": "'{" + ",".join(ids[:n]).replace("'", "") + "}'" for n in (10, 100, 1000)}}
        if key != "uuid":
            fields[key] |= {"other_lines": "bench_bigint_lines", "ends": "min(id), max(id)"}     # min(uuid) is 19's
        if key != "uuid" or ordered:
            fields[key]["p"] = f"bench_{key}_by_month"
    return fields


def shapes(bench):
    progress("shapes: tables")
    rows = bench.rows(200_000)
    fields = make_tables(bench, rows)
    samples = {shape: [] for shape in SHAPES}

    def measure(shape):
        """The milliseconds that each key takes, {key: ms}."""
        settings, query = SHAPES[shape]
        queries, prepare = {}, []
        for key, values in fields.items():
            with contextlib.suppress(KeyError):
                prepare.append(settings.format(**values) + ";")
                queries[key] = query.format(**values)
        undo = query.startswith(("INSERT", "DELETE"))
        array = ", ".join(f"$query${q}$query$" for q in queries.values())
        found = bench.main.psql(("VACUUM bench_bigint, bench_snowflake, bench_uuid;" if undo else "") + " ".join(prepare)
                                + f"SELECT bench_ms(ARRAY[{array}], {undo}, {5 if bench.quick else 30})")
        return dict(zip(queries, (float(row[0]) for row in found)))

    for i in range(bench.few(9)):
        progress(f"shapes, round {i + 1}")
        for shape in SHAPES:
            samples[shape].append(measure(shape))
    over = {shape: {key: [r[key] / r["bigint"] for r in samples[shape] if key in r] for key in ("snowflake", "uuid")}
            for shape in SHAPES}
    medians = {shape: statistics.median(over[shape]["snowflake"]) for shape in SHAPES}
    reasons = {shape: REASONS.get(shape, "**no reason is known**") if medians[shape] > 1.05 else "" for shape in SHAPES}
    unexplained = {shape: medians[shape] for shape in SHAPES if shape not in REASONS}
    slowest = max(unexplained, key=unexplained.get)
    uuid = "UUIDv7" if bench.version >= 18 else "UUIDv4"
    text = (f"The same statement of tables of {rows:,} rows of half a year in shared buffers, in the order of their time, whose "
            f"key is a `bigint`, a `snowflake` or a `uuid` ({uuid}). The `bigint` numbers are those of the snowflakes. A time is "
            "that in the snowflake, and an indexed `created_at` of the others. Partitioned \"by month\" is by ranges of the key. "
            "Each statement is parsed and planned each time, unless it is prepared; the three take turns of 2 ms in one session, "
            "and the time is that on a processor. What they change is rolled back.\n\n"
            + table(["statement", "bigint, ms", "snowflake over bigint", f"{uuid} over bigint", "why above 1.05"],
                    [[shape, spread([r["bigint"] for r in samples[shape]]), spread(over[shape]["snowflake"]),
                      spread(over[shape]["uuid"]) if over[shape]["uuid"] else "", reasons[shape]] for shape in SHAPES])
            + "\nThe bounds of the partitions and the times of the rows are the same, and so are the plans of `bigint` and "
            "`snowflake`, but for what reads a time. The nested loops over a foreign key have the plan of `bigint`, too, and by the "
            "fastest of 150 runs take as long; the medians go up and down: in another run of 2026-11-22 they were 1.04 and 1.07.\n")
    middle = {key: statistics.median(statistics.median(x[key]) for x in over.values() if x[key]) for key in ("snowflake", "uuid")}
    return Section("What an application asks", text, [
        Target(f"time over that of a bigint key, worst of {len(unexplained)} without a reason below: {slowest}", "≤", 1.05,
               over[slowest]["snowflake"])], [
        ["Are queries slower than with `bigint` keys?",
         f"{'no' if middle['snowflake'] <= 1.05 else 'yes'}: {number(middle['snowflake'])} times the time at the median of {len(SHAPES)} statements; {uuid}: "
         f"{number(middle['uuid'])} times"]])
