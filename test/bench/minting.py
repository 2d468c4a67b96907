"""Parts mint, bare and tail: the function that makes a key."""

import dataclasses
import math
import statistics
import time

from common import in_turns, plural, progress
from report import Section, Target, bars, number, ratios, spread, table, tails

CAP = 4_096_000                 # IDs a second of the layout "twitter"
MAX_LEAD = 0.005                # seconds that the generator may be ahead of the clock
CONNECTIONS = (1, 2, 8, 32, 100, 500)
MANY = 100                      # connections from which on queries are short, and fewer subjects are measured less often
WIDE_LAYOUT = "time:36 node:10 sequence:16 epoch:2026-01-01T00:00:00Z"
EXTENSIONS = {                  # of others, if installed: a function that makes a key
    "pg_uuidv7": "uuid_generate_v7()", "ulid": "gen_ulid()", "pg_ulid": "gen_ulid()", "pgulid": "generate_ulid()"}


@dataclasses.dataclass(frozen=True)
class Mint:
    """A way to make keys, and how many of them one query makes: about 10 ms worth, 1 ms with many connections."""
    name: str
    call: str
    count: int

    def keys(self, clients=1):
        return self.count // 10 if clients >= MANY else self.count

    def query(self, clients=1):
        return f"SELECT count({self.call}) FROM generate_series(1, {self.keys(clients)})"


SNOWFLAKE = Mint("snowflake_next()", "snowflake_next()", 20000)
FLOOR = Mint("empty C function", "bench_floor()", 20000)
NEXTVAL = Mint("nextval()", "nextval('bench_sequence')", 20000)
CACHED = Mint("nextval(), CACHE 1000", "nextval('bench_sequence_cache')", 20000)
UUIDV4 = Mint("gen_random_uuid()", "gen_random_uuid()", 5000)
UUIDV7 = Mint("uuidv7()", "uuidv7()", 5000)
RECIPE = Mint("PL/pgSQL recipe", "bench_recipe()", 5000)
PGEDGE = Mint("pgEdge snowflake.nextval()", "snowflake.nextval()", 20000)
WITH_MANY = (SNOWFLAKE, FLOOR, NEXTVAL, UUIDV7, PGEDGE)


def mint_rates(bench, server, subjects, connections):
    """{connections: {subject: [keys a second]}}.  What the generator may be ahead at the end counts as time."""
    rates = {}
    for clients in connections:
        progress(f"{server.directory.name}: minting, {plural(clients)}")

        def measure(subject, clients=clients):
            transactions, seconds = (bench.pgedge if subject == PGEDGE else server).pgbench(
                subject.query(clients), clients, 1, 4000 // clients if clients >= MANY else None)
            return transactions * subject.keys(clients) / (seconds + (MAX_LEAD if subject == SNOWFLAKE else 0))
        many = clients >= MANY
        rates[clients] = in_turns(bench.few(3 if many else 5), [s for s in subjects if not many or s in WITH_MANY], measure)
    return rates


def rate_table(subjects, rates, cap):
    rows = [[s.name] + [spread(of[s], 1e-6) if s in of else "" for of in rates.values()] for s in subjects]
    return table(["million a second", *map(plural, rates)],
                 rows[:1] + [["cap of the layout"] + [number(cap / 1e6)] * len(rates)] + rows[1:])


def plot_rates(path, title, subjects, rates, mark=None):
    bars(path, title, "million a second", [str(n) for n in rates],
         {s.name: [[x / 1e6 for x in of.get(s, [])] for of in rates.values()] for s in subjects}, mark, "connections")


def mint(bench):
    subjects = [SNOWFLAKE, FLOOR, NEXTVAL, CACHED, UUIDV4, RECIPE, Mint("Instagram's PL/pgSQL", "bench_instagram()", 2000)]
    absent = []
    if bench.version >= 18:
        subjects.insert(5, UUIDV7)
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

    rates = mint_rates(bench, bench.main, subjects, (1, 500) if bench.quick else CONNECTIONS)
    plot_rates(bench.plot("minting"), "IDs a second, all connections together", subjects, rates,
               (CAP / 1e6, "cap of the layout"))
    targets = [Target(f"rate over the cap, {plural(n)}", "≥", 0.9 if n == 1 else 0.97,
                      [rate / CAP for rate in of[SNOWFLAKE]]) for n, of in rates.items() if n <= MANY]
    text = (f"`{SNOWFLAKE.query()}`, prepared, back to back for a second in each round; all connections together. "
            f"From {MANY} connections on a query makes a tenth of that. The layout is `twitter`, whose cap is {CAP:,} a second "
            f"and node: more than that no generator of the format can make, so what must hold beside others is below, where "
            f"the cap does not bind. The lead of at most {MAX_LEAD * 1000:.0f} ms that the generator has at the end is "
            "counted as time.\n\n"
            + rate_table(subjects, rates, CAP)
            + f"\nNot installed, hence not measured: {', '.join(absent)}.\n"
            + (f"pgEdge's extension is version {version}, on a server of its own with the same settings.\n"
               if bench.pgedge else "")
            + "\n![IDs a second](benchmarks/minting.svg)\n")
    medians = {n: statistics.median(rates[n][SNOWFLAKE]) for n in rates}
    few = min((n for n in rates if n < MANY), key=medians.get)
    return Section("Minting", text, targets, [
        ["How many IDs can a server mint?",
         f"{number(medians[few] / 1e6)} million a second, {medians[few] / CAP:.1%} of the format's cap, with "
         + (f"1 to {max(n for n in rates if n < MANY)} connections" if len(rates) > 2 else plural(few))
         + "".join(f"; {number(medians[n] / 1e6)} with {n}" for n in rates if n >= MANY)]])


# Part: bare

# The figures of a tree that is not this one, measured by hand on 2026-11-22.
EXPERIMENT = """
Without the lock? A mint takes the shared lock and does a compare-and-swap. An experiment marked the closed gate by the top
bit of `last`, so that a mint takes no lock: closing makes every compare-and-swap fail. On PostgreSQL 15, 20 rounds in turns,
the rate was 1.20 (0.88–1.50) times the present one with 1 connection, 1.21 (0.93–1.37) with 2, 1.22 (1.08–1.36) with 8. The bit
alone is not safe: a model found a position issued above the stored end of its node when an opening leaves `last` as it was, and
when `snowflake_restart_at_clock()` takes it back. With a second look at the number of the opening no ID comes twice, also in a model of
weak memory. But a mint that finds another number there has raised `last` above the limit, to a position that nobody has: what a
frontier and `snowflake_advance()` promise would then be lost in a crash, unless each reader of `last` takes that into account. With
that the proof would be about as long as the present one, for a gain that the cap hides in most layouts: a mint keeps the lock.
"""


def bare_targets(rates, cap):
    targets = [Target(f"query time over that with the empty C function, {plural(n)}", "≤", bound,
                      ratios(rates[n][FLOOR], rates[n][SNOWFLAKE])) for n, bound in ((1, 1.35), (8, 2)) if n in rates]
    for subject, bound in ((PGEDGE, 2), (NEXTVAL, 1.5), (RECIPE, 10)):
        for n, of in rates.items():
            if n >= MANY and subject not in of:
                continue
            allowed = cap / statistics.median(of.get(subject, [1]))
            targets.append(Target(f"rate over that of {subject.name}, {plural(n)}, cap not binding", "≥", bound,
                                  ratios(of[SNOWFLAKE], of.get(subject, [])),
                                  f"; the cap allows {number(allowed)}" if allowed < bound else ""))
    return targets


def bare(bench):
    subjects = ([SNOWFLAKE, FLOOR, NEXTVAL, CACHED] + [UUIDV7] * (bench.version >= 18) + [RECIPE]
                + [PGEDGE] * (bench.pgedge is not None))
    batches = {}
    count = 20000
    queries = {name: f"SELECT count(*) FROM (SELECT {name}({'1, ' if name == 'generate_series' else ''}{count})) s"
               for name in ("snowflake_next_batch", "generate_series")}
    with bench.server("bare", **{"snowflake.layout": WIDE_LAYOUT}) as server:
        bench.prepare(server)
        cap = int(server.value("SELECT ids_per_second FROM snowflake_layout()"))
        rates = mint_rates(bench, server, subjects, (1, 8) if bench.quick else CONNECTIONS)
        for clients in (1, 8):
            progress(f"bare: batches, {plural(clients)}")

            def measure(name, clients=clients):
                transactions, seconds = server.pgbench(queries[name], clients, 1)
                return transactions * count / seconds
            batches[clients] = in_turns(bench.few(5), list(queries), measure)

    plot_rates(bench.plot("bare"), "IDs a second, cap not binding", subjects, rates)
    speeds = {n: ratios(batches[n]["snowflake_next_batch"], batches[n]["generate_series"]) for n in batches}
    targets = bare_targets(rates, cap)
    targets.append(Target("snowflake_next_batch(n) over generate_series(1, n), 1 connection", "≥", 0.8, speeds[1]))
    over = {s: [ratios(of[FLOOR], of[s]) if s in of else None for of in rates.values()] for s in subjects}
    text = (f"The same queries with the layout `{WIDE_LAYOUT}`, whose cap of {cap:,} a second does not bind.\n\n"
            + rate_table(subjects, rates, cap)
            + "\nThe time of the query over that of the query with the empty C function:\n\n"
            + table(["query time, ratio", *map(plural, rates)],
                    [[s.name] + [spread(of) if of else "" for of in over[s]] for s in subjects])
            + "\n![IDs a second](benchmarks/bare.svg)\n\n"
            f"Batches: `{queries['snowflake_next_batch']}` beside `{queries['generate_series']}`, "
            "million rows a second:\n\n"
            + table(["connections", *queries, "ratio"],
                    [[n, *(spread(batches[n][name], 1e-6) for name in queries), spread(speeds[n])] for n in batches])
            + EXPERIMENT)
    peers = [f"{spread(ratios(rates[1][SNOWFLAKE], rates[1][s]))} times as fast as `{s.name}`"
             for s in (NEXTVAL, UUIDV7) if s in rates[1]]
    return Section("The bare cost of a mint", text, targets, [
        ["What does one ID cost, where the cap does not bind?",
         f"{spread([1e9 / x for x in rates[1][SNOWFLAKE]])} ns, the query around it included; {', '.join(peers)}"]])


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
            "SELECT reservations, keeper_waits, clock_waits FROM snowflake_stats")[0]]

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
        transactions, _ = server.pgbench(SNOWFLAKE.query(), 8, seconds)
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
