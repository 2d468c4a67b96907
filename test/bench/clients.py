"""Part clients: rows that get their keys from programs as users write them, in five languages.

Each client is a process that is connected all the time and takes turns: it is told to insert a number of rows in one way into
an empty table, and says how long that took.  The programs are in clients/, what they need is in the chroot of
test/clients.sh.
"""

import pathlib
import shutil
import socket
import statistics
import subprocess

from common import in_turns, progress
from report import Section, number, quartiles, ratios, table

HERE = pathlib.Path(__file__).parent / "clients"
PASTED = HERE.parent.parent.parent / "doc" / "clients"
NODE_MODULES = pathlib.Path("/srv/npm/node_modules")
JDBC = pathlib.Path("/usr/share/java/postgresql.jar")
GOCODE = pathlib.Path("/usr/share/gocode")

KEYS = {"snowflake": "id snowflake DEFAULT snowflake_next()", "bigserial": "id bigserial", "UUIDv7": "id uuid DEFAULT uuidv7()"}
TABLES = {key: f"bench_{key.lower()}" for key in KEYS}

# how many rows a turn has
ROWS = {"single": 250, "batch": 4000, "copy": 20_000}
WAYS = {"single": "single rows", "batch": "batches of 1,000", "copy": "`COPY`"}
COPY_WAYS = {"copy": "`COPY`, the default", "staging": "`COPY` to a temporary table, `INSERT … SELECT`",
             "ids": "`snowflake_next_batch()`, `COPY` with these keys", "arrays": "`INSERT … SELECT … FROM unnest($1, $2)`"}
WARM = 4                        # turns of each that do not count


class Client:
    """A running client."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} has ended: {self.process.wait()}")
        return line

    def turn(self, way, key, rows):
        """Rows a second."""
        self.process.stdin.write(f"{way} {TABLES[key]} {rows}\n")
        self.process.stdin.flush()
        return rows / float(self.answer())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def have(*modules):
    return subprocess.run(["/usr/bin/python3", "-c", f"import {', '.join(modules)}"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def commands(work):
    """{client: (how it inserts single rows, and batches; the command that builds it, or none; that runs it)} of those that are
    installed"""
    python = ["/usr/bin/python3", "-B"]
    found = {}
    if have("psycopg"):
        found["psycopg 3"] = ("`execute()`", "`executemany()`", None, [*python, HERE / "psycopg3_bench.py"])
    if have("psycopg", "sqlalchemy"):
        found["SQLAlchemy"] = ("`add()`", "`add_all()`", None, [*python, HERE / "sqlalchemy_bench.py"])
    if shutil.which("node") and NODE_MODULES.exists():
        found["node-postgres"] = ("`query()`", "`unnest($1, $2)`", None, ["node", HERE / "node_bench.js"])
    if shutil.which("javac") and JDBC.exists():
        found["JDBC"] = ("`executeQuery()`", "`executeBatch()`, rewritten", ["javac", "-cp", JDBC, "-d", work, HERE / "JdbcBench.java"],
                         ["java", "-cp", f"{JDBC}:{work}", "JdbcBench"])
    if shutil.which("go") and (GOCODE / "src/github.com/jackc/pgx").exists():
        found["pgx"] = ("`QueryRow()`", "`SendBatch()`", ["go", "build", "-o", work / "pgx_bench", HERE / "pgx_bench.go"],
                        [work / "pgx_bench"])
    return found


def free_port():
    """For the server, since JDBC knows no Unix sockets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clients(bench):
    title = "What clients see"
    found = commands(bench.work)
    if not found or bench.version < 18:
        return Section(title, "Not measured: this needs PostgreSQL 18 and `--clients`.\n")
    rounds = bench.few(31)
    rates, copies = {}, {}
    # the disk is as slow for all keys, and TRUNCATE, before each turn, would wait for it as well
    with bench.server("clients", listen_addresses="127.0.0.1", port=free_port(), fsync="off") as server:
        server.psql("CREATE EXTENSION snowflake; " + "; ".join(
            f"CREATE TABLE {TABLES[key]} ({column} PRIMARY KEY, n integer NOT NULL, item text NOT NULL)"
            for key, column in KEYS.items()))
        environment = {
            **server.environment, "PYTHONPATH": str(PASTED), "NODE_PATH": str(NODE_MODULES), "GO111MODULE": "off",
            "GOPATH": str(GOCODE), "GOCACHE": str(bench.work / "go")}
        for client, (_, _, build, command) in found.items():
            progress(f"clients: {client}")
            if build:
                subprocess.run(build, env=environment, check=True)
            with Client(command, environment) as running:
                for way, rows in ROWS.items():
                    if client != "SQLAlchemy" or way != "copy":
                        rates |= measure(running, rounds, {(client, way, key): (way, key, rows) for key in KEYS})
                if client != "SQLAlchemy":
                    subjects = {(client, way, "snowflake"): (way, "snowflake", ROWS["copy"]) for way in COPY_WAYS}
                    copies |= measure(running, rounds, {
                        (client, "copy", "bigserial"): ("copy", "bigserial", ROWS["copy"]), **subjects})
    return Section(title, "\n".join([
        f"A key, an integer and a text of some 20 bytes, in {rounds} short turns of each key, into an empty table, as programs would "
        "write it: a single row returns its key and commits; a batch is a transaction. `fsync` is off, so that the disk "
        "does not hide the keys. Median (quartiles). Thousand rows a second with bigserial, and the rates of the others over that:\n",
        rates_table(found, rates),
        "Ways to load, rates over that of `COPY` with bigserial:\n",
        copies_table(copies),
        WHY]), short=[["Does a client see the difference to `bigserial`?", answer(rates)]])


def measure(running, rounds, subjects):
    """{subject: [rows a second]}; subjects: {subject: arguments of turn()}"""
    samples = in_turns(WARM + rounds, list(subjects), lambda subject: running.turn(*subjects[subject]))
    return {subject: figures[WARM:] for subject, figures in samples.items()}


def answer(rates):
    over = {way: [statistics.median(ratios(figures, rates[client, way, "bigserial"]))
                  for (client, of, key), figures in rates.items() if of == way and key == "snowflake"] for way in WAYS}
    return "; ".join(f"{name}: {number(min(over[way]))} to {number(max(over[way]))} times its rate" for way, name in WAYS.items())


def rates_table(found, rates):
    lines = []
    for client, (single, batch, _, _) in found.items():
        for way, how in (("single", f"{WAYS['single']}, {single}"), ("batch", f"{WAYS['batch']}, {batch}"), ("copy", WAYS["copy"])):
            if (client, way, "bigserial") in rates:
                base = rates[client, way, "bigserial"]
                lines.append([client, how, quartiles(base, 1e-3),
                              *(quartiles(ratios(rates[client, way, key], base)) for key in ("snowflake", "UUIDv7"))])
    return table(["client", "how", "bigserial", "snowflake", "UUIDv7"], lines).replace("| --- | ---: |", "| --- | --- |", 1)


def copies_table(copies):
    names = list(dict.fromkeys(client for client, _, _ in copies))
    return table(["snowflake", *names], [
        [how, *(quartiles(ratios(copies[client, way, "snowflake"], copies[client, "copy", "bigserial"])) for client in names)]
        for way, how in COPY_WAYS.items()])


WHY = """Leave the key to its default in `COPY`, too. PostgreSQL inserts row by row then ([Bulk loads](#bulk-loads)), but with most clients no
way around that is faster: a temporary table is written and read in addition, and keys that are taken first travel to the client
and back. node-postgres is the exception. Its `COPY` loses half of the rate to any default that is volatile, UUIDv7's as well;
arrays lose little, and so do keys that are taken first.
"""
