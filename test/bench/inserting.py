"""Parts insert and bulk: rows that get their keys."""

import statistics

from common import in_turns, progress
from report import Section, Target, bars, number, ratios, spread, table


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
    if bench.version >= 18:
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
    texts.append(("UUIDv7 is made by an SQL function here. " if bench.version < 18 else "")
                 + "ULID is made by a function in PL/pgSQL: such a rate is that of the function, the size that of the format.\n")
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


# Part: bulk

VALUES_ROWS = 1000              # of one INSERT … VALUES


def bulk_keys(bench):
    keys = {"snowflake": KEYS["snowflake"], "bigserial": KEYS["bigserial"],
            "identity": "id bigint PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY"}
    if bench.version >= 18:
        return {**keys, "UUIDv7": "id uuid PRIMARY KEY DEFAULT uuidv7()"}
    return {**keys, "UUIDv4": KEYS["UUIDv4"]}


def bulk(bench):
    rows, applied = bench.rows(400_000), bench.rows(200_000)
    keys = bulk_keys(bench)
    data = bench.work / "bulk"
    values = f"INSERT INTO bench_bulk (n) VALUES {', '.join(f'({n})' for n in range(VALUES_ROWS))}"
    generate = f"INSERT INTO bench_bulk (n) SELECT n FROM generate_series(1, {rows}) n"
    ways = {"`COPY`": f"COPY bench_bulk (n) FROM '{data}.n'",
            "`COPY`, keys given": f"COPY bench_bulk FROM '{data}.{{key}}'",
            "`INSERT … SELECT`": generate,
            "`INSERT … VALUES`": f"""
                DO $$ BEGIN FOR i IN 1 .. {rows // VALUES_ROWS} LOOP EXECUTE '{values}'; END LOOP; END $$"""}

    with bench.server("publisher", wal_level="logical") as server:
        bench.prepare(server)

        def measure(subject):
            way, key = subject
            found = server.psql(f"""
                CREATE TABLE bench_bulk ({keys[key]}, n integer NOT NULL);
                CHECKPOINT;
                SELECT extract(epoch FROM clock_timestamp());
                {ways[way].format(key=key)};
                SELECT extract(epoch FROM clock_timestamp());
                DROP TABLE bench_bulk""")
            return rows / (float(found[1][0]) - float(found[0][0]))
        for key, column in keys.items():
            server.psql(f"CREATE TABLE bench_bulk ({column}, n integer NOT NULL); {generate};"
                        f"COPY bench_bulk (n) TO '{data}.n'; COPY bench_bulk TO '{data}.{key}'; DROP TABLE bench_bulk")
        samples = {}
        for way in ways:
            progress(f"bulk: {way}")
            measure((way, "snowflake"))
            samples |= in_turns(bench.few(7), [(way, key) for key in keys], measure)
        samples |= apply(bench, server, keys, applied)

    ways = dict.fromkeys(way for way, _ in samples)
    bars(bench.plot("bulk"), "Rows a second", "thousand rows a second", [way.replace("`", "") for way in ways],
         {key: [[x / 1e3 for x in samples[way, key]] for way in ways] for key in keys})
    over = {key: {way: ratios(samples[way, key], samples[way, "bigserial"]) for way in ways} for key in keys}
    text = (f"A key and an integer; {rows:,} rows, those of logical replication {applied:,} in one transaction, from its commit "
            "until they are visible in another database of the same server, with the defaults of a subscription except "
            f"`streaming = off`. `VALUES` has {VALUES_ROWS} rows. The key is made by its default, is in the file, or is replicated. "
            "Thousand rows a second:\n\n"
            + table(["", *keys], [[way] + [spread(samples[way, key], 1e-3) for key in keys] for way in ways])
            + "\nOver bigserial's:\n\n"
            + table(["", *keys], [[way] + [spread(over[key][way]) for key in keys] for way in ways])
            + "\n![Rows a second](benchmarks/bulk.svg)\n\n" + WHY_BULK)
    low, high = (f([statistics.median(x) for x in over["snowflake"].values()]) for f in (min, max))
    return Section("Bulk loads", text, [
        Target(f"rate over bigserial's, {way}", "≥", 0.95, over["snowflake"][way],
               "; the default is volatile: see [Bulk loads](#bulk-loads)" if way == "`COPY`" else "") for way in ways], [
        ["Are bulk loads slower than with `bigserial`?", f"{number(low)} to {number(high)} times its rate"]])


WHY_BULK = """`COPY` and the default: PostgreSQL inserts many rows at a time, unless a default is volatile; it makes an exception
for `nextval()` only. With `snowflake_next()`, as with `uuidv7()`, it inserts them one by one (perf: `heap_insert` in place of
`heap_multi_insert`), which an ID from a faster function does not make up for. The ways around that cost a client more:
see [What clients see](#what-clients-see).
"""


def apply(bench, publisher, keys, rows):
    """{(what is replicated, key): [rows a second]}"""
    inserted, updated = "replicated inserts", "replicated updates"
    names = {key: f"bench_apply_{i}" for i, key in enumerate(keys)}
    tables = "; ".join(f"CREATE TABLE {names[key]} ({keys[key]}, n integer NOT NULL)" for key in keys)
    tables += "; CREATE TABLE bench_applied (n serial PRIMARY KEY)"
    replica = publisher.database("replica")
    replica.psql(f"CREATE EXTENSION snowflake; {tables}")
    publisher.psql(f"""
        {tables};
        CREATE PUBLICATION bench FOR TABLE bench_applied, {", ".join(names.values())} WITH (publish = 'insert, update');
        SELECT pg_create_logical_replication_slot('bench', 'pgoutput')""")
    replica.psql(f"""
        CREATE SUBSCRIPTION bench CONNECTION 'host={publisher.socket_directory} port={publisher.port} dbname=postgres user=postgres'
        PUBLICATION bench WITH (create_slot = off, slot_name = 'bench', copy_data = off, streaming = off)""")

    def arrival(statement):
        """Seconds from the commit of a statement until the replica shows it."""
        mark, sent = publisher.psql(f"""
            BEGIN; {statement}; INSERT INTO bench_applied DEFAULT VALUES RETURNING n; COMMIT;
            SELECT extract(epoch FROM clock_timestamp())""")
        arrived = replica.value(f"""
            DO $$ BEGIN
                WHILE NOT EXISTS (SELECT FROM bench_applied WHERE n = {mark[0]}) LOOP PERFORM pg_sleep(0.002); END LOOP;
            END $$;
            SELECT extract(epoch FROM clock_timestamp())""")
        return float(arrived) - float(sent[0])

    def measure(key):
        for server in (publisher, replica):
            server.psql(f"TRUNCATE {names[key]}; CHECKPOINT")
        return (rows / arrival(f"INSERT INTO {names[key]} (n) SELECT n FROM generate_series(1, {rows}) n"),
                rows / arrival(f"UPDATE {names[key]} SET n = n + 1"))
    progress("bulk: logical replication")
    measure("snowflake")
    samples = in_turns(bench.few(5), list(keys), measure)
    replica.psql("DROP SUBSCRIPTION bench")
    return {(way, key): [sample[i] for sample in samples[key]] for i, way in enumerate((inserted, updated)) for key in keys}
