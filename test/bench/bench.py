"""The benchmarks; run.sh starts it.

Every figure compares subjects that were measured in turns on one machine in one
run, so that whatever disturbs one disturbs the others, too.  A figure is the
median of several rounds, with minimum and maximum; a ratio is taken within each
round first.
"""

import argparse
import contextlib
import dataclasses
import datetime
import os
import pathlib
import signal
import statistics
import sys
import time

from report import Section, Target, bars, number, ratios, spread, table, tails
from server import Server, machine

CAP = 4_096_000                 # IDs a second of the layout "twitter"
MAX_LEAD = 0.005                # seconds that the generator may be ahead of the clock
CONNECTIONS = (1, 2, 8, 32)
WIDE_LAYOUT = "time:36 node:10 sequence:16 epoch:2026-01-01T00:00:00Z"
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "16GB", "min_wal_size": "2GB", "checkpoint_timeout": "1h",
            "work_mem": "64MB", "max_parallel_workers_per_gather": 0, "jit": "off", "autovacuum": "off",
            "max_connections": 100}
MINTING = {"shared_preload_libraries": "snowflake", "snowflake.node_id": 1}
EXTENSIONS = {                  # of others, if installed: a function that makes a key
    "pg_uuidv7": "uuid_generate_v7()", "ulid": "gen_ulid()", "pg_ulid": "gen_ulid()", "pgulid": "generate_ulid()"}


@dataclasses.dataclass
class Bench:
    """What every part needs."""
    bindir: str
    work: pathlib.Path
    quick: bool
    full: bool
    main: Server = None         # with the layout "twitter"
    pgedge: Server = None       # or none

    def few(self, many):
        """A number of rounds."""
        return 2 if self.quick else many

    def rows(self, many):
        return many // 20 if self.quick else many

    def plot(self, name):
        return self.work / "report" / "benchmarks" / f"{name}.svg"

    def server(self, name, **settings):
        return Server(self.bindir, self.work / name, {**SETTINGS, **MINTING, **settings})

    def prepare(self, server):
        here = pathlib.Path(__file__).parent
        server.psql((here / "peers.sql").read_text(encoding="ascii"), floor=self.work / "floor.so")


def progress(text):
    print(f"[{time.monotonic() - STARTED:4.0f} s] {text}", flush=True)


def in_turns(rounds, subjects, measure, fewer=None):
    """{subject: [measure(subject) of each round]}; fewer: subjects that are in the first few rounds only."""
    samples = {subject: [] for subject in subjects}
    for i in range(rounds):
        turn = [subject for subject in subjects if i < (fewer or {}).get(subject, rounds)]
        first = i % len(turn)
        for subject in turn[first:] + turn[:first]:
            samples[subject].append(measure(subject))
    return samples


# Part: mint

@dataclasses.dataclass(frozen=True)
class Mint:
    """A way to make keys, and how many of them one query makes: about 10 ms worth."""
    name: str
    call: str
    count: int

    @property
    def query(self):
        return f"SELECT count({self.call}) FROM generate_series(1, {self.count})"


SNOWFLAKE = Mint("snowflake_next()", "snowflake_next()", 20000)
FLOOR = Mint("empty C function", "bench_floor()", 20000)
NEXTVAL = Mint("nextval()", "nextval('bench_sequence')", 20000)
CACHED = Mint("nextval(), CACHE 1000", "nextval('bench_sequence_cache')", 20000)
RECIPE = Mint("PL/pgSQL recipe", "bench_recipe()", 5000)
PGEDGE = Mint("pgEdge snowflake.nextval()", "snowflake.nextval()", 20000)


def plural(connections):
    return f"{connections} connection{'s' if connections > 1 else ''}"


def mint_rates(bench, server, subjects, clients):
    """{subject: [keys a second]}.  What the generator may be ahead at the end counts as time."""
    def measure(subject):
        transactions, seconds = (bench.pgedge if subject == PGEDGE else server).pgbench(subject.query, clients, 1)
        return transactions * subject.count / (seconds + (MAX_LEAD if subject == SNOWFLAKE else 0))
    return in_turns(bench.few(5), subjects, measure)


def rate_table(subjects, rates, connections):
    return table(["million a second"] + [plural(n) for n in connections],
                 [[s.name] + [spread(rates[n][s], 1e-6) for n in connections] for s in subjects])


def plot_rates(path, title, subjects, rates, connections, mark=None):
    bars(path, title, "million a second", [plural(n) for n in connections],
         {s.name: [[x / 1e6 for x in rates[n][s]] for n in connections] for s in subjects}, mark)


def peer_targets(rates, suffix, cap):
    """Targets beside the peers: missed for certain where a peer alone comes too close to the cap."""
    targets = []
    for subject, bound in ((PGEDGE, 2), (NEXTVAL, 1.5), (RECIPE, 10)):
        for n, of in rates.items():
            allowed = cap / statistics.median(of.get(subject, [1]))
            targets.append(Target(f"rate over that of {subject.name}, {plural(n)}{suffix}", "≥", bound,
                                  ratios(of[SNOWFLAKE], of.get(subject, [])),
                                  f"; the cap allows {number(allowed)}" if allowed < bound else ""))
    return targets


def mint(bench):
    subjects = [SNOWFLAKE, FLOOR, NEXTVAL, CACHED, Mint("gen_random_uuid()", "gen_random_uuid()", 5000), RECIPE,
                Mint("Instagram's PL/pgSQL", "bench_instagram()", 2000)]
    absent = []
    if int(bench.main.value("SHOW server_version_num")) >= 180000:
        subjects.append(Mint("uuidv7()", "uuidv7()", 5000))
    else:
        absent.append("uuidv7() (PostgreSQL 18)")
    available = {row[0] for row in bench.main.psql("SELECT name FROM pg_available_extensions")}
    for name, call in EXTENSIONS.items():
        if name in available:
            bench.main.psql(f'CREATE EXTENSION "{name}"')
            subjects.append(Mint(f"{name}: {call}", call, 5000))
        else:
            absent.append(f"the extension {name}")
    if bench.pgedge:
        version = bench.pgedge.value("SELECT extversion FROM pg_extension WHERE extname = 'snowflake'")
        subjects.append(PGEDGE)
    else:
        absent.append("pgEdge's snowflake (run.sh --pgedge)")

    connections = CONNECTIONS[:2] if bench.quick else CONNECTIONS
    rates = {}
    for clients in connections:
        progress(f"mint, {plural(clients)}")
        rates[clients] = mint_rates(bench, bench.main, subjects, clients)

    plot_rates(bench.plot("minting"), "IDs a second, all connections together", subjects, rates, connections,
               (CAP / 1e6, "cap of the layout"))
    targets = [Target(f"rate over the cap, {plural(n)}", "≥", 0.9 if n == 1 else 0.97,
                      [rate / CAP for rate in rates[n][SNOWFLAKE]]) for n in connections]
    targets += peer_targets(rates, "", CAP)
    text = (f"`{SNOWFLAKE.query}`, prepared, back to back for a second in each round; all connections together. The "
            f"layout is `twitter`, whose cap is {CAP:,} a second and node. The lead of at most {MAX_LEAD * 1000:.0f} ms "
            "that the generator has at the end is counted as time.\n\n"
            + rate_table(subjects, rates, connections)
            + f"\nNot installed, hence not measured: {', '.join(absent)}.\n"
            + (f"pgEdge's extension is version {version}, on a server of its own with the same settings.\n"
               if bench.pgedge else "")
            + "\n![IDs a second](benchmarks/minting.svg)\n")
    return Section("Minting", text, targets)


# Part: bare

def bare(bench):
    subjects = [SNOWFLAKE, FLOOR, NEXTVAL, CACHED, RECIPE] + [PGEDGE] * (bench.pgedge is not None)
    connections = (1, 8) if bench.quick else CONNECTIONS
    rates, batches = {}, {}
    count = 20000
    queries = {name: f"SELECT count(*) FROM (SELECT {name}({'1, ' if name == 'generate_series' else ''}{count})) s"
               for name in ("snowflake_next_batch", "generate_series")}
    with bench.server("bare", **{"snowflake.layout": WIDE_LAYOUT}) as server:
        bench.prepare(server)
        cap = int(server.value("SELECT ids_per_second FROM snowflake_layout()"))
        for clients in connections:
            progress(f"bare, {plural(clients)}")
            rates[clients] = mint_rates(bench, server, subjects, clients)

            def measure(name, clients=clients):
                transactions, seconds = server.pgbench(queries[name], clients, 1)
                return transactions * count / seconds
            if clients in (1, 8):
                batches[clients] = in_turns(bench.few(5), list(queries), measure)

    plot_rates(bench.plot("bare"), "IDs a second, cap not binding", subjects, rates, connections)
    targets = [Target(f"query time over that with the empty C function, {plural(n)}",
                      "≤", bound, ratios(rates[n][FLOOR], rates[n][SNOWFLAKE])) for n, bound in ((1, 1.35), (8, 2))]
    targets += peer_targets(rates, ", cap not binding", cap)
    speeds = {n: ratios(batches[n]["snowflake_next_batch"], batches[n]["generate_series"]) for n in batches}
    targets.append(Target("snowflake_next_batch(n) over generate_series(1, n), 1 connection", "≥", 0.8, speeds[1]))
    rows = [[s.name] + [spread(ratios(rates[n][FLOOR], rates[n][s])) for n in connections] for s in subjects]
    text = (f"The same queries with the layout `{WIDE_LAYOUT}`, whose cap of {cap:,} a second does not bind.\n\n"
            + rate_table(subjects, rates, connections)
            + "\nThe time of the query over that of the query with the empty C function:\n\n"
            + table(["query time, ratio"] + [plural(n) for n in connections], rows)
            + "\n![IDs a second](benchmarks/bare.svg)\n\n"
            f"Batches: `{queries['snowflake_next_batch']}` beside `{queries['generate_series']}`, "
            "million rows a second:\n\n"
            + table(["connections", *queries, "ratio"],
                    [[n, *(spread(batches[n][name], 1e-6) for name in queries), spread(speeds[n])] for n in batches]))
    return Section("The bare cost of a mint", text, targets)


# Part: tail

HISTOGRAM_MAX = 1921            # what floor.c appends to its histogram


def bucket_end(i):
    """The largest value in a bucket of floor.c's histogram."""
    if i < 32:
        return i
    return ((32 + i % 32 + 1) << (i // 32 - 1)) - 1


def percentiles(histogram, shares):
    """The values, in nanoseconds, below which these shares of the calls lie."""
    counts, longest = histogram[:-1], histogram[-1]
    total, seen, shares, result = sum(counts), 0, list(shares), []
    for i, count in enumerate(counts):
        seen += count
        while shares and seen >= shares[0] * total:
            result.append(min(bucket_end(i), longest))
            shares.pop(0)
    return result


def tail(bench):
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
    functions = {SNOWFLAKE.name: ("snowflake_next()", "0"), FLOOR.name: ("bench_floor()", "0"),
                 NEXTVAL.name: ("nextval(regclass)", "'bench_sequence'::regclass")}
    seconds = 1 if bench.quick else 3
    waits = dict.fromkeys(("half the cap", "the cap, 8 connections"), (0, 0, 0, 0))
    server = bench.main

    def counters():
        return [int(x) for x in server.psql(
            "SELECT reservations, keeper_waits, clock_waits FROM snowflake_status()")[0]]

    def counted(name, minted, before, after):
        differences = [b - a for a, b in zip(before, after)]
        waits[name] = tuple(x + y for x, y in zip(waits[name], (minted, *differences)))

    def measure_with(clients):
        def measure(name):
            function, argument = functions[name]
            calls = int(CAP / 2 * seconds / clients)
            if name == SNOWFLAKE.name:
                server.psql("SELECT snowflake_next()")      # after an idle time the first mint waits for the keeper
            before = counters()
            query = f"SELECT unnest(bench_latency('{function}', {argument}, {calls}, {CAP / 2 / clients}))"
            running = [server.start_psql(query) for _ in range(clients)]
            parts = [[int(row[0]) for row in wait()] for wait in running]
            if name == SNOWFLAKE.name:
                counted("half the cap", calls * clients, before, counters())
            return [sum(column) for column in zip(*(part[:-1] for part in parts))] + [max(part[-1] for part in parts)]
        return measure

    histograms, tables = {}, []
    for clients in (1, 2):
        progress(f"tail, {plural(clients)}")
        histograms[clients] = in_turns(bench.few(3), list(functions), measure_with(clients))
        rows = []
        for name, rounds in histograms[clients].items():
            values = list(zip(*(percentiles(histogram, shares.values()) + [histogram[-1]] for histogram in rounds)))
            rows.append([name] + [spread(column, 1e-3) for column in values])
        tables.append(f"{plural(clients)}, {number(CAP / 2 / clients)} calls a second"
                      + ("" if clients == 1 else " each") + ":\n\n" + table(["µs", *shares, "longest"], rows))
    for _ in range(bench.few(3)):
        server.psql("SELECT snowflake_next()")
        before = counters()
        transactions, _ = server.pgbench(SNOWFLAKE.query, 8, seconds)
        counted("the cap, 8 connections", transactions * SNOWFLAKE.count, before, counters())

    first = []
    reserved = server.value("SELECT extract(epoch FROM current_setting('snowflake.reservation')::interval)")
    for _ in range(bench.few(3)):
        time.sleep(1.1 * float(reserved))
        first.append(int(server.psql(f"SELECT (bench_latency('snowflake_next()', 0, 1, 1))[{HISTOGRAM_MAX}]")[0][0]))

    curves = {}
    for name, rounds in histograms[1].items():
        total, left, points = sum(sum(histogram[:-1]) for histogram in rounds), 0, []
        for i, count in reversed(list(enumerate(map(sum, zip(*(histogram[:-1] for histogram in rounds)))))):
            left += count
            if count:
                points.append((bucket_end(i - 1) + 1 if i else 0, left / total))
        curves[name] = points
    tails(bench.plot("tail"), "How long calls took, at half the cap, 1 connection", curves)

    text = (f"A C function calls the function through the function manager {CAP // 2:,} times a second, half the cap, "
            "and reads the monotonic clock before and after each call. It keeps the pace by spinning, so with two "
            "connections both cores are busy, and whatever else runs, the keeper too, interrupts one of them. The "
            "empty C function shows what the clock readings and the machine account for. In µs:\n\n"
            + "\n".join(tables) + "\n![Tail](benchmarks/tail.svg)\n\n"
            "In steady state, over all rounds:\n\n"
            + table(["rate", "mints", "reservations", "waited for the keeper", "waited for the clock"],
                    [[name, *(f"{x:,}" for x in numbers)] for name, numbers in waits.items()])
            + "\nAt the cap, mints wait for the clock: that is what a cap is. The first mint after an idle time "
            f"longer than the reservation waits for the keeper's commit: {spread(first, 1e-6)} ms.\n")
    return Section("Tail", text)


# Part: insert

KEYS = {"snowflake": "id snowflake PRIMARY KEY DEFAULT snowflake_next()", "bigserial": "id bigserial PRIMARY KEY",
        "UUIDv4": "id uuid PRIMARY KEY DEFAULT gen_random_uuid()",
        "UUIDv7": "id uuid PRIMARY KEY DEFAULT bench_uuidv7()",
        "ULID as text": "id text PRIMARY KEY DEFAULT bench_ulid()"}


def insert_once(server, key, rows):
    """(rows a second, WAL bytes per row, index bytes, leaf density) of one statement on an empty table."""
    clock = "SELECT extract(epoch FROM clock_timestamp()), pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    before, after, index = server.psql(f"""
        CREATE TABLE bench_insert ({KEYS[key]}, n integer NOT NULL);
        CHECKPOINT;
        {clock};
        INSERT INTO bench_insert (n) SELECT n FROM generate_series(1, {rows}) n;
        {clock};
        SELECT pg_relation_size('bench_insert_pkey'), avg_leaf_density FROM pgstatindex('bench_insert_pkey');
        DROP TABLE bench_insert;""")
    return (rows / (float(after[0]) - float(before[0])), (int(after[1]) - int(before[1])) / rows,
            int(index[0]), float(index[1]))


def insert(bench):
    server = bench.main
    if int(server.value("SHOW server_version_num")) >= 180000:
        KEYS["UUIDv7"] = KEYS["UUIDv7"].replace("bench_uuidv7", "uuidv7")
    texts, targets = [], []
    for rows, most, least in [(bench.rows(1_000_000), 9, 3)] + [(10_000_000, 2, 1)] * bench.full:
        progress(f"insert, {rows:,} rows")
        insert_once(server, "snowflake", rows)      # the WAL's files exist after this
        fewer = {key: bench.few(least) for key in ("UUIDv4", "UUIDv7", "ULID as text")}
        samples = in_turns(bench.few(most), list(KEYS), lambda key, rows=rows: insert_once(server, key, rows), fewer)
        rates, wal, size, density = ({key: [sample[i] for sample in samples[key]] for key in KEYS} for i in range(4))
        texts.append(
            f"{rows:,} rows, one `INSERT … SELECT` into a new table of a key and an integer, after a checkpoint, with "
            f"full-page writes; {bench.few(most)} rounds, with the slower keys in {bench.few(least)} of them:\n\n"
            + table(
                ["key", "thousand rows a second", "over bigserial's", "WAL bytes per row", "index, MB",
                 "leaf density, %"],
                [[key, spread(rates[key], 1e-3), spread(ratios(rates[key], rates["bigserial"])), spread(wal[key]),
                  spread(size[key], 1e-6), spread(density[key])] for key in KEYS]))
        targets += [
            Target(f"insert rate over bigserial's, {rows:,} rows", "≥", 0.97,
                   ratios(rates["snowflake"], rates["bigserial"])),
            Target(f"WAL per row over bigserial's, {rows:,} rows", "≤", 1.02,
                   ratios(wal["snowflake"], wal["bigserial"])),
            Target(f"index size over UUIDv4's, {rows:,} rows", "≤", 0.56, ratios(size["snowflake"], size["UUIDv4"]))]
    bars(bench.plot("insert"), f"Rows a second, {rows:,} rows", "thousand rows a second", list(KEYS),
         {"rate": [[x / 1e3 for x in rates[key]] for key in KEYS]})
    bars(bench.plot("index"), f"Size of the index, {rows:,} rows", "MB", list(KEYS),
         {"size": [[x / 1e6 for x in size[key]] for key in KEYS]})
    texts.append("![Rows a second](benchmarks/insert.svg)\n\n![Index size](benchmarks/index.svg)\n")
    if int(server.value("SHOW server_version_num")) < 180000:
        texts.append("UUIDv7 is made by an SQL function here, ULID by one in PL/pgSQL: their rates are those of the "
                     "functions, their sizes those of the formats.\n")
    texts.append(insert_large(bench))
    return Section("Inserting", "\n".join(texts), targets)


def insert_large(bench):
    """Text on inserts into indexes much larger than shared_buffers."""
    old, new, buffers_mb = bench.rows(1_000_000), bench.rows(100_000), 4
    # without the background writer all writes before a checkpoint are the inserter's, and counted as its own
    settings = {"shared_buffers": f"{buffers_mb}MB", "bgwriter_lru_maxpages": 0}
    with bench.server("large", **settings) as server:
        bench.prepare(server)
        progress("insert, index larger than shared_buffers")
        for i, key in enumerate(KEYS):
            server.psql(f"CREATE TABLE bench_large_{i} ({KEYS[key]}, n integer NOT NULL);"
                        f"INSERT INTO bench_large_{i} (n) SELECT n FROM generate_series(1, {old}) n")
        sizes = {key: int(server.value(f"SELECT pg_relation_size('bench_large_{i}_pkey')"))
                 for i, key in enumerate(KEYS)}

        def measure(key):
            table_name = f"bench_large_{list(KEYS).index(key)}"
            plan = server.psql(f"""
                CHECKPOINT;
                EXPLAIN (ANALYZE, BUFFERS, TIMING OFF)
                INSERT INTO {table_name} (n) SELECT n FROM generate_series(1, {new}) n""")
            lines = [row[0].strip() for row in plan]
            counts = dict(part.split("=") for part in next(x for x in lines if x.startswith("Buffers:")).split()
                          if "=" in part)
            ms = float(next(x for x in lines if x.startswith("Execution Time:")).split()[2])
            return new / ms * 1000, int(counts.get("read", 0)) / new * 1000, int(counts.get("written", 0)) / new * 1000
        samples = in_turns(bench.few(5), list(KEYS), measure)
    rates, read, written = ({key: [sample[i] for sample in samples[key]] for key in KEYS} for i in range(3))
    bars(bench.plot("buffers"), f"Buffers per 1000 rows, shared_buffers = {buffers_mb} MB", "buffers", list(KEYS),
         {"read": [read[key] for key in KEYS], "written": [written[key] for key in KEYS]})
    return (f"With shared_buffers = {buffers_mb} MB, {new:,} rows more in each round into a table of {old:,}; buffers "
            "of the heap and the index, read into shared buffers and written out (or added at the end of a file) by the "
            "statement:\n\n" + table(
                ["key", "index before, MB", "thousand rows a second", "over bigserial's", "read per 1000 rows",
                 "written per 1000 rows"],
                [[key, number(sizes[key] / 1e6), spread(rates[key], 1e-3),
                  spread(ratios(rates[key], rates["bigserial"])),
                  spread(read[key]), spread(written[key])] for key in KEYS])
            + "\n![Buffers](benchmarks/buffers.svg)\n")


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
    subjects = {"bench_ids": ["snowflake_timestamp(id)", "@ id", "id"], "bench_bigints": ["id", *shifts.values()]}

    def measure(subject):
        table_name, expression = subject
        transactions, seconds = bench.main.pgbench(f"SELECT count({expression}) FROM {table_name}", 1, 1)
        return seconds / transactions / rows * 1e9
    samples = in_turns(bench.few(5), [(name, x) for name, list_ in subjects.items() for x in list_], measure)
    numeric = samples["bench_bigints", shifts["numeric"]]
    targets = []
    for expression in ("snowflake_timestamp(id)", "@ id"):
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
    return Section("Time ranges by ID, without a created_at index", text)


# Part: bigint

SCAN = "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;"
SHAPES = {                      # settings, and the query of a table {t}; {list}: 1000 IDs of it
    "1000 literals in `IN`, filter": (SCAN, "SELECT count(*) FROM {t} WHERE id IN ({list})"),
    "1000 literals in `IN`, by index": ("", "SELECT count(v) FROM {t} WHERE id IN ({list})"),
    "1000 literals in `NOT IN`": (SCAN, "SELECT count(*) FROM {t} WHERE id NOT IN ({list})"),
    "`= ANY (bigint[])`, filter": (SCAN, "SELECT count(*) FROM {t} WHERE id = ANY ('{{{list}}}'::bigint[])"),
    "`= ANY (bigint[])`, by index": ("", "SELECT count(v) FROM {t} WHERE id = ANY ('{{{list}}}'::bigint[])"),
    "`<> ALL (bigint[])`": (SCAN, "SELECT count(*) FROM {t} WHERE id <> ALL ('{{{list}}}'::bigint[])"),
    "one row by its key": ("", "SELECT v FROM {t} WHERE id = {one}"),
    "1000 rows by nested loop": ("", "SELECT count(v) FROM unnest('{{{list}}}'::bigint[]) i, LATERAL "
                                     "(SELECT v FROM {t} WHERE id = i OFFSET 0) r"),
    "range of 20,000 rows": ("", "SELECT count(v) FROM {t} WHERE id BETWEEN {one} AND {other}"),
    "merge join with a `bigint` foreign key": ("SET enable_hashjoin = off; SET enable_nestloop = off;",
                                               "SELECT count(*) FROM {t} JOIN bench_lines ON order_id = id"),
    "hash join with it": ("SET enable_mergejoin = off; SET enable_nestloop = off;",
                          "SELECT count(*) FROM {t} JOIN bench_lines ON order_id = id"),
    "`ORDER BY`, sort": (SCAN, "SELECT count(*) FROM (SELECT id, v FROM {t} ORDER BY id OFFSET 0) q"),
    "`ORDER BY`, by index": ("SET enable_sort = off;", "SELECT count(*) FROM (SELECT id, v FROM {t} ORDER BY id OFFSET 0) q"),
    "page of 20 before an ID": ("", "SELECT id, v FROM {t} WHERE id < {one} ORDER BY id DESC LIMIT 20"),
    "`min` and `max`": ("", "SELECT min(id), max(id) FROM {t}"),
    "`min` and `max`, prepared": ("PREPARE q AS SELECT min(id), max(id) FROM {t};", "EXECUTE q"),
    "`DISTINCT`": ("SET enable_sort = off; SET enable_indexonlyscan = off; SET enable_indexscan = off;",
                   "SELECT count(*) FROM (SELECT DISTINCT id FROM {t} OFFSET 0) q"),
    "`GROUP BY`": ("SET enable_sort = off; SET enable_indexonlyscan = off; SET enable_indexscan = off;",
                   "SELECT count(*) FROM (SELECT id, count(*) FROM {t} GROUP BY id OFFSET 0) q")}


def beside_bigint(bench):
    progress("bigint")
    rows = 200_000
    bench.main.psql(f"""
        CREATE TABLE bench_snowflake_keys (id snowflake PRIMARY KEY, v integer);
        CREATE TABLE bench_bigint_keys (id bigint PRIMARY KEY, v integer);
        CREATE TABLE bench_lines (order_id bigint, n integer);
        INSERT INTO bench_bigint_keys SELECT g * 5000000000, g FROM generate_series(1::bigint, {rows}) g ORDER BY hashint8(g);
        INSERT INTO bench_snowflake_keys SELECT * FROM bench_bigint_keys;
        INSERT INTO bench_lines SELECT id, v FROM bench_bigint_keys ORDER BY hashint8(id);
        CREATE INDEX ON bench_lines (order_id);
        VACUUM ANALYZE bench_snowflake_keys, bench_bigint_keys, bench_lines;
        -- by the time on a processor, so that others on the machine do not count
        CREATE FUNCTION bench_ms(query text) RETURNS float8 LANGUAGE plpgsql AS $$
        DECLARE
            began float8;
            spent float8 := 0;
            runs integer := 0;
        BEGIN
            EXECUTE query;
            began := split_part(pg_read_file('/proc/self/schedstat'), ' ', 1);
            WHILE spent < 60 LOOP
                FOR n IN 1 .. CASE WHEN runs > 0 AND spent / runs < 1 THEN 100 ELSE 1 END LOOP
                    EXECUTE query;
                    runs := runs + 1;
                END LOOP;
                spent := (split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::float8 - began) / 1e6;
            END LOOP;
            RETURN spent / runs;
        END $$""")
    values = {"list": ",".join(str(g * 5_000_000_000) for g in range(1, rows, rows // 1000)),
              "one": rows // 2 * 5_000_000_000, "other": (rows // 2 + 20_000) * 5_000_000_000}

    def measure(subject):
        shape, key = subject
        settings, query = (text.format(t=f"bench_{key}_keys", **values) for text in SHAPES[shape])
        return float(bench.main.value(f"{settings} SELECT bench_ms($query${query}$query$)"))
    samples = in_turns(bench.few(5), [(shape, key) for shape in SHAPES for key in ("bigint", "snowflake")], measure)
    over = {shape: ratios(samples[shape, "snowflake"], samples[shape, "bigint"]) for shape in SHAPES}
    slowest = max(over, key=lambda shape: statistics.median(over[shape]))
    text = (f"The same query of a table of {rows:,} rows in shared buffers, in random order, whose key is a snowflake or a "
            "bigint; planned and run several times in each round, 1 connection. The time is that on a processor.\n\n"
            + table(["query", "bigint, ms", "snowflake, ms", "ratio"],
                    [[shape, spread(samples[shape, "bigint"]), spread(samples[shape, "snowflake"]), spread(over[shape])]
                     for shape in SHAPES])
            + "\nThe plans are the same. For `min` and `max` the parser searches longer, since no aggregate takes a snowflake "
            "itself: some 50 µs for a statement that is not prepared.\n")
    return Section("Beside a bigint key", text,
                   [Target(f"query time over that of a bigint key, worst of {len(SHAPES)}: {slowest}", "≤", 1.3, over[slowest])])


PARTS = {"mint": mint, "bare": bare, "tail": tail, "insert": insert, "decode": decode, "range": time_range,
         "bigint": beside_bigint}


def write_report(bench, sections, facts):
    targets = [target.row() for section in sections for target in section.targets]
    text = ["# Benchmarks\n",
            f"Made by `bash test/bench/run.sh` on {datetime.date.today()}"
            + (" **at a small scale, to see that it works: the figures mean nothing**" if bench.quick else "") + ". "
            "The subjects were measured in turns, in several rounds; a figure is the median (minimum–maximum) of the "
            "rounds. A ratio is taken within each round, between neighbours in time. Times without a ratio say little "
            "on another machine.\n",
            table(["machine", ""], facts).replace("---:", "---")]
    if targets:
        text += ["## What must hold\n", table(["", "target", "measured", ""], targets)]
    for section in sections:
        text += [f"## {section.title}\n", section.text]
    path = bench.work / "report" / "benchmarks.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(text), encoding="utf-8")
    print(table(["", "target", "measured", ""], targets))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--tree", required=True)
    parser.add_argument("--pgedge-bindir")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])      # none: all
    options = parser.parse_args()
    bench = Bench(options.bindir, options.work, options.quick, options.full)

    # a signal unwinds the stack, which stops the servers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (bench.work / "bench.pid").write_text(str(os.getpid()), encoding="ascii")
    progress("start a server")
    with contextlib.ExitStack() as servers:
        bench.main = servers.enter_context(bench.server("main"))
        bench.prepare(bench.main)
        if options.pgedge_bindir:
            bench.pgedge = servers.enter_context(Server(options.pgedge_bindir, bench.work / "pgedge-data", {
                **SETTINGS, "shared_preload_libraries": "snowflake", "snowflake.node": 1}))
            bench.pgedge.psql("CREATE EXTENSION snowflake")
        facts = machine(bench.main) + [("tree", options.tree)]
        sections = [part(bench) for name, part in PARTS.items() if not options.parts or name in options.parts]
    write_report(bench, sections, facts)
    progress("done")


STARTED = time.monotonic()
if __name__ == "__main__":
    main()
