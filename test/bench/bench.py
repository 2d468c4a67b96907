"""The benchmarks: tables of minting, inserts, filters on time and a migration; run.sh starts it.

What a table compares was measured in turns on one machine in one run, so that whatever disturbs one disturbs the others, too.
A figure is the median of several rounds, with minimum and maximum; a ratio is taken within each round first.
"""

import argparse
import contextlib
import datetime
import math
import os
import pathlib
import signal
import statistics
import sys
import time

from server import Server, machine

HERE = pathlib.Path(__file__).parent
STARTED = time.monotonic()
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "16GB", "min_wal_size": "2GB", "checkpoint_timeout": "1h",
            "work_mem": "64MB", "max_parallel_workers_per_gather": 0, "jit": "off", "autovacuum": "off",
            "max_connections": 200}
WIDE_LAYOUT = "time:36 node:10 sequence:16 epoch:2026-01-01T00:00:00Z"
MAX_LEAD = 0.005                # seconds that the generator may be ahead of the clock
CONNECTIONS = (1, 2, 8, 32, 100)
MANY = 32                       # connections from which on queries are short


def progress(text):
    print(f"[{time.monotonic() - STARTED:4.0f} s] {text}", flush=True)


def in_turns(rounds, subjects, measure):
    """{subject: [measure(subject) of each round]}"""
    samples = {subject: [] for subject in subjects}
    for i in range(rounds):
        first = i % len(subjects)
        for subject in subjects[first:] + subjects[:first]:
            samples[subject].append(measure(subject))
    return samples


def number(value):
    """Three significant digits, or all that there are before the point."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def spread(samples, scale=1):
    """Median and, if there are several samples that differ, minimum and maximum."""
    low, middle, high = (number(f(samples) * scale) for f in (min, statistics.median, max))
    return middle if low == high else f"{middle} ({low}–{high})"


def ratios(above, below):
    """The ratios of two subjects' samples, round by round."""
    return [a / b for a, b in zip(above, below)]


def table(header, rows):
    """A Markdown table; all columns but the first are right-aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


class Bench:
    def __init__(self, options):
        self.bindir, self.work, self.quick = options.bindir, options.work, options.quick
        self.pgedge_bindir = options.pgedge_bindir

    def few(self, many):
        """A number of rounds."""
        return 2 if self.quick else many

    def rows(self, many):
        return many // 20 if self.quick else many

    @contextlib.contextmanager
    def servers(self, name, **settings):
        """One with the extension, and one with pgEdge's or none."""
        with contextlib.ExitStack() as stack:
            floor = self.work / "floor.so"
            main = stack.enter_context(Server(self.bindir, self.work / name, {
                **SETTINGS, "shared_preload_libraries": f"snowflake, {floor}", "snowflake.node_id": 1, **settings}))
            main.psql("CREATE EXTENSION snowflake")
            uuidv7 = int(main.value("SHOW server_version_num")) >= 180000
            main.psql((HERE / "peers.sql").read_text(encoding="ascii"), floor=floor, uuidv7=uuidv7)
            pgedge = None
            if self.pgedge_bindir:
                pgedge = stack.enter_context(Server(self.pgedge_bindir, self.work / f"{name}-pgedge", {
                    **SETTINGS, "shared_preload_libraries": "snowflake", "snowflake.node": 1}))
                pgedge.psql("CREATE EXTENSION snowflake; CREATE SEQUENCE bench_sequence")
            yield main, pgedge


# What makes a key, and how many of them one query makes: about 10 ms worth, a tenth of that with many connections.
MINTS = {"`snowflake_next()`": ("snowflake_next()", 20000), "empty C function": ("bench_floor()", 20000),
         "compare-and-swap": ("bench_cas()", 20000), "the same under a shared lock": ("bench_locked_cas()", 20000),
         "`nextval()`": ("nextval('bench_sequence')", 20000), "`uuidv7()`": ("uuidv7()", 5000),
         "pgEdge's `snowflake.nextval()`": ("snowflake.nextval()", 20000)}
OURS, LOCKED, PGEDGE = list(MINTS)[0], list(MINTS)[3], list(MINTS)[-1]


def minting(bench):
    def measure_with(main, pgedge, clients):
        def measure(name):
            call, count = MINTS[name]
            count //= 10 if clients >= MANY else 1
            transactions, seconds = (pgedge if name == PGEDGE else main).pgbench(
                f"SELECT count({call}) FROM generate_series(1, {count})", clients, 1, 4000 // clients if clients >= MANY else None)
            # what the generator may be ahead of the clock at the end counts as time
            return transactions * count / (seconds + (MAX_LEAD if name == OURS else 0))
        return measure

    rates, share = {}, {}
    connections = (1, 8) if bench.quick else CONNECTIONS
    names = [name for name in MINTS if name != PGEDGE or bench.pgedge_bindir]
    with bench.servers("cap") as (main, _):
        cap = int(main.value("SELECT ids_per_second FROM snowflake_layout()"))
        for clients in connections:
            progress(f"minting, layout twitter, {clients} connections")
            share[clients] = in_turns(bench.few(5), [OURS], measure_with(main, None, clients))[OURS]
    with bench.servers("wide", **{"snowflake.layout": WIDE_LAYOUT}) as (main, pgedge):
        for clients in connections:
            progress(f"minting, {clients} connections")
            rates[clients] = in_turns(bench.few(5), names, measure_with(main, pgedge, clients))
    heads = [f"{n} connection{'s' if n > 1 else ''}" for n in connections]
    return "## Minting\n\n" + (
        "`SELECT count(…) FROM generate_series(1, 20000)`, prepared, for a second in each round; all connections together. "
        f"The first row is the share of the cap of the layout `twitter`, {cap:,} IDs a second. The others are million a second, "
        f"where the cap does not bind: with the layout `{WIDE_LAYOUT}`. The last row is the time of `snowflake_next()` over that "
        "of a compare-and-swap under a shared lock, which is the least for IDs that ascend over all sessions.\n\n"
        + table(["", *heads],
                [["share of the cap", *(spread(of, 1 / cap) for of in share.values())]]
                + [[name, *(spread(of[name], 1e-6) for of in rates.values())] for name in names]
                + [["over that floor", *(spread(ratios(of[LOCKED], of[OURS])) for of in rates.values())]]))


KEYS = {"bigserial": "id bigserial PRIMARY KEY", "identity": "id bigint PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY",
        "snowflake": "id snowflake PRIMARY KEY DEFAULT snowflake_next()", "UUIDv7": "id uuid PRIMARY KEY DEFAULT uuidv7()",
        "UUIDv4": "id uuid PRIMARY KEY DEFAULT gen_random_uuid()",
        "pgEdge": "id bigint PRIMARY KEY DEFAULT snowflake.nextval('bench_sequence')"}


def inserts(bench):
    rows = bench.rows(1_000_000)
    data = bench.work / "rows"
    data.write_text("".join(f"{n}\n" for n in range(rows)), encoding="ascii")
    clock = "SELECT extract(epoch FROM clock_timestamp()), pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    ways = {"`INSERT … SELECT`": f"INSERT INTO bench_insert (n) SELECT n FROM generate_series(1, {rows}) n",
            "`COPY`": f"COPY bench_insert (n) FROM '{data}'"}
    keys = [key for key in KEYS if key != "pgEdge" or bench.pgedge_bindir]

    with bench.servers("inserts") as (main, pgedge):
        def measure(subject):
            """(rows a second, bytes of WAL a row, bytes of the index), of one statement on an empty table"""
            way, key = subject
            before, after, size = (pgedge if key == "pgEdge" else main).psql(f"""
                CREATE TABLE bench_insert ({KEYS[key]}, n integer NOT NULL);
                CHECKPOINT;
                {clock};
                {ways[way]};
                {clock};
                SELECT pg_relation_size('bench_insert_pkey');
                DROP TABLE bench_insert""")
            return rows / (float(after[0]) - float(before[0])), (int(after[1]) - int(before[1])) / rows, int(size[0])

        def single(key):
            server = pgedge if key == "pgEdge" else main
            server.psql(f"CREATE TABLE bench_insert ({KEYS[key]}, n integer NOT NULL)")
            transactions, seconds = server.pgbench("INSERT INTO bench_insert (n) VALUES (1) RETURNING id", 8, 2)
            server.psql("DROP TABLE bench_insert")
            return transactions / seconds
        samples = {}
        for way in ways:
            progress(f"inserts: {way}")
            measure((way, "snowflake"))         # the WAL's files exist after this
            samples |= in_turns(bench.few(7), [(way, key) for key in keys], measure)
        progress("inserts: single rows")
        # so that the disk does not hide the keys
        for server in filter(None, (main, pgedge)):
            server.psql("ALTER SYSTEM SET synchronous_commit = off; SELECT pg_reload_conf()")
        singles = in_turns(bench.few(7), keys, single)

    found = {(*subject, i): [of[i] for of in taken] for subject, taken in samples.items() for i in range(3)}
    first = list(ways)[0]
    return "## Inserts\n\n" + (
        f"{rows:,} rows of a key and an integer, in one statement into an empty table; and single rows that return their key, by "
        "8 connections with `synchronous_commit = off`. Rows a second, over those of `bigserial`, which has "
        + ", ".join(f"{spread(found[way, 'bigserial', 0], 1e-3)} thousand by {way}" for way in ways)
        + f" and {spread(singles['bigserial'], 1e-3)} thousand of single rows.\n\n"
        + table(["key", *ways, "single rows", "WAL, bytes a row", "index, MB"],
                [[key, *(spread(ratios(found[way, key, 0], found[way, "bigserial", 0])) for way in ways),
                  spread(ratios(singles[key], singles["bigserial"])), spread(found[first, key, 1]),
                  spread(found[first, key, 2], 1e-6)] for key in keys]))


def times(bench):
    rows = bench.rows(20_000_000)
    with bench.servers("times") as (main, _):
        progress("times: space")
        space = float(main.psql("""
            CREATE TABLE by_id AS SELECT make_snowflake(timestamptz '2026-01-01' + g * interval '31.536 s', 1, 1) AS id, 'note ' || g AS note
                FROM generate_series(0, 999999) g;
            CREATE TABLE by_time AS SELECT id::bigint, note, @@ id AS created_at FROM by_id;
            CREATE INDEX ON by_id (id);
            CREATE INDEX ON by_time (id);
            CREATE INDEX ON by_time (created_at);
            SELECT pg_total_relation_size('by_id')::float / pg_total_relation_size('by_time')""")[0][0])
        progress(f"times, {rows:,} rows")
        forms = main.psql(f"\\set rows {rows}\n" + (HERE / "timefilter.sql").read_text(encoding="utf-8"))
    return "## Filters on time\n\n" + (
        f"Rows of {rows:,} of a year, planned and executed, in ms, the median of 101 rounds in turns: of a range of the ID that is "
        "written with constants, of a view whose `created_at` is the time of the ID, and of a column with an index of its own. "
        f"Without that column and index the heap and its indexes take {space:.2f} times the space.\n\n"
        + table(["rows", "form", "number", "`id`, constants", "`@@ id`", "over constants", "a column"],
                [[row[0], f"`{row[1]}`", *row[2:]] for row in forms]))


WAYS = {
    "online": ["CALL snowflake_migrate.fill('{public.orders}')", "SELECT snowflake_migrate.build() \\gexec", "CALL snowflake_migrate.swap()",
               "CALL snowflake_migrate.finish()"],
    "`convert()`": ["SELECT count(*) FROM snowflake_migrate.convert('{public.orders}')"],
    "`ALTER TABLE`": ["BEGIN", "ALTER TABLE orders ALTER id TYPE bigint", "ALTER TABLE items ALTER order_id TYPE bigint",
                      "ALTER TABLE orders ALTER id SET DEFAULT snowflake_next()", "COMMIT"]}


def migrate(bench):
    rows = bench.rows(1_000_000)
    clock = "SELECT extract(epoch FROM clock_timestamp()), pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
    found = []
    with bench.servers("migrate", autovacuum="on") as (main, _):
        progress(f"migrate, {rows:,} rows")
        main.psql("CREATE DATABASE bench_template")
        with main.database("bench_template"):
            main.psql((HERE / "migrate.sql").read_text(encoding="ascii"), rows=rows)
        for way, statements in WAYS.items():
            progress(f"migrate: {way}")
            main.psql("CREATE DATABASE bench TEMPLATE bench_template; CHECKPOINT")
            with main.database("bench"):
                user = main.start(f"CALL bench_use({rows})")
                while int(main.value("SELECT count(*) FROM bench_waits")) < 100:
                    time.sleep(0.1)
                main.psql("TRUNCATE bench_waits")
                before, *_, after = main.psql("\n".join(
                    line + ("" if line.endswith("gexec") else ";") for line in [clock, *statements, clock]))
                main.psql("INSERT INTO bench_stop DEFAULT VALUES")
                user.wait()
                longest = float(main.value("SELECT max(ms) FROM bench_waits"))
            main.psql("DROP DATABASE bench")
            found.append([way, number((float(after[0]) - float(before[0])) / 60), number((int(after[1]) - int(before[1])) / 1e6), number(longest / 1000)])
    return "## Migration\n\n" + (
        f"{rows:,} orders with a key, a reference and five indexes, and as many rows that reference them, become `bigint`, while a session "
        "updates and inserts orders, of which the longest wait is shown: with `fill()`, `build()`, `swap()` and `finish()`, with "
        "`convert()`, and with the statements that change the two columns alone.\n\n"
        + table(["", "minutes", "WAL, MB", "longest wait, s"], found))


PARTS = {"minting": minting, "inserts": inserts, "times": times, "migrate": migrate}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--tree", required=True)
    parser.add_argument("--pgedge-bindir")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])      # none: all
    options = parser.parse_args()
    bench = Bench(options)

    # a signal unwinds the stack, which stops the servers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (bench.work / "bench.pid").write_text(str(os.getpid()), encoding="ascii")
    with bench.servers("machine") as (server, _):
        facts = [*machine(server), ("tree", options.tree), ("day", datetime.date.today())]
    text = ["# What was measured\n"] + ["Made at a small scale, to see that it works: the figures mean nothing.\n"] * bench.quick
    text += [part(bench) for name, part in PARTS.items() if not options.parts or name in options.parts]
    text += ["## Where\n", table(["", ""], facts).replace("---:", "---")]
    (bench.work / "report.md").write_text("\n".join(text), encoding="utf-8")
    progress("done")


if __name__ == "__main__":
    main()
