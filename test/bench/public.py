"""Part public: IDs encrypted for the outside."""

import statistics

from common import in_turns, progress
from report import Section, number, spread, table


def public(bench):
    progress("public")
    server = bench.main
    rows = bench.rows(100_000)
    keys = bench.work / "public.keys"
    keys.write_text(f"1 {'5e' * 32}\n", encoding="ascii")
    keys.chmod(0o600)
    server.psql(f"""
        CREATE EXTENSION IF NOT EXISTS snowflake_public;
        ALTER SYSTEM SET snowflake_public.key_file = '{keys}';
        SELECT pg_reload_conf();
        CREATE EXTENSION IF NOT EXISTS pgcrypto;
        CREATE TABLE bench_public (id snowflake PRIMARY KEY, v integer);
        INSERT INTO bench_public SELECT snowflake_next(), n FROM generate_series(1, {rows}) n""")
    server.psql("""
        CREATE TABLE bench_faces AS
            SELECT id, id::bigint AS n, snowflake_to_text(id, 'base62') AS base62, snowflake_public(id, 'ord') AS public,
                snowflake_public_uuid(id, 'ord') AS uuid FROM bench_public;
        VACUUM ANALYZE bench_public, bench_faces""")
    faces = {"the scan alone": "id",
             "as text": "id::text", "as base62": "snowflake_to_text(id, 'base62')", "base62 back": "snowflake_from_text(base62, 'base62')",
             "encrypted": "snowflake_public(id, 'ord')", "decrypted": "snowflake_private(public, 'ord')",
             "as UUID": "snowflake_public_uuid(id, 'ord')", "UUID back": "snowflake_private(uuid, 'ord')",
             "a random UUID, to compare": "gen_random_uuid()",
             "pgcrypto's AES, to compare": "encode(encrypt(int8send(n), '\\x5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e', 'aes'), 'hex')"}

    def measure(face):
        transactions, seconds = server.pgbench(f"SELECT count({faces[face]}) FROM bench_faces", 1, 1)
        return seconds / transactions / rows * 1e9
    samples = in_turns(bench.few(5), list(faces), measure)

    one, text, uuid = server.psql("SELECT id, public, uuid FROM bench_faces LIMIT 1")[0]
    lookups = {"the ID": one, "its encrypted text": f"snowflake_private('{text}', 'ord')",
               "its UUID": f"snowflake_private('{uuid}', 'ord')"}
    array = ", ".join(f"$query$SELECT v FROM bench_public WHERE id = {x}$query$" for x in lookups.values())
    took = list(zip(*([float(row[0]) for row in server.psql(f"SELECT bench_ms(ARRAY[{array}], false, 40)")]
                      for _ in range(bench.few(5)))))
    text = (f"`SELECT count(…) FROM` a table of {rows:,} rows in shared buffers, 1 connection:\n\n"
            + table(["", "expression", "ns per row"], [[face, f"`{faces[face]}`", spread(samples[face])] for face in faces])
            + "\nOne row by its key, planned each time, on a processor:\n\n"
            + table(["looked up by", "µs"], [[what, spread(x, 1e3)] for what, x in zip(lookups, took)]))
    there, back = (statistics.median(samples[x]) - statistics.median(samples["the scan alone"]) for x in ("encrypted", "decrypted"))
    return Section("IDs for the outside", text, [], [
        ["What does it cost to encrypt an ID?", f"{number(there / 1e3)} µs, and {number(back / 1e3)} µs back"]])
