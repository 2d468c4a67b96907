"""A throw-away server, and what runs against it.  Standard library only."""

import copy
import os
import pathlib
import re
import subprocess


class Server:
    """A PostgreSQL server in a new directory, reachable through a socket there only."""

    def __init__(self, bindir, directory, settings):
        self.bindir = pathlib.Path(bindir)
        self.directory = pathlib.Path(directory)
        # a socket's path may have 107 bytes, so it is not in the data directory
        self.socket_directory = self.directory.parent
        self.port = settings.get("port", 5432 + int.from_bytes(self.directory.name.encode()[:2], "big") % 1000)
        self.environment = {
            **os.environ, "LC_ALL": "C", "PGHOST": str(self.socket_directory), "PGPORT": str(self.port),
            "PGUSER": "postgres", "PGDATABASE": "postgres", "PGTZ": "UTC"}
        self._run("initdb", "-D", self.directory, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        with open(self.directory / "postgresql.conf", "a", encoding="ascii") as conf:
            settings = {"listen_addresses": "", "unix_socket_directories": self.socket_directory,
                        "port": self.port, **settings}
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self._run("pg_ctl", "-D", self.directory, "-l", self.directory.with_suffix(".log"), "-w", "start")

    def stop(self):
        if (self.directory / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", self.directory, "-m", "fast", "-w", "stop")

    def database(self, name):
        """The same server, with its new database of that name."""
        self.psql(f"CREATE DATABASE {name}")
        other = copy.copy(self)
        other.environment = {**self.environment, "PGDATABASE": name}
        return other

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _run(self, program, *arguments, stdin=None):
        # pg_ctl's server inherits its output, which must therefore not be a pipe
        output = subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE
        done = subprocess.run([self.bindir / program, *map(str, arguments)], input=stdin, env=self.environment,
                              stdout=output, stderr=subprocess.PIPE if program != "pg_ctl" else None,
                              text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr}")
        return done.stdout

    def _psql_arguments(self, variables):
        arguments = ["-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        for name, value in variables.items():
            arguments += ["-v", f"{name}={value}"]
        return arguments

    def psql(self, sql, **variables):
        """Rows of all results, as lists of text, of statements sent one by one in a new session."""
        output = self._run("psql", *self._psql_arguments(variables), stdin=sql)
        return [line.split("\t") for line in output.splitlines()]

    def value(self, sql):
        return self.psql(sql)[0][0]

    def start_psql(self, sql):
        """Like psql(), but returns at once; a call of what it returns waits for the rows."""
        process = subprocess.Popen(
            [self.bindir / "psql", *self._psql_arguments({}), "-c", sql],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def wait():
            output, errors = process.communicate()
            if process.returncode != 0:
                raise RuntimeError(f"psql failed: {errors}")
            return [line.split("\t") for line in output.splitlines()]
        return wait

    def pgbench(self, sql, clients, seconds, each=None):
        """(transactions, seconds they took), less the time to connect.  With many connections the time is up before all are
        made, so that each of them runs a number of transactions then."""
        script = self.directory.with_suffix(".pgbench")
        script.write_text(sql + ";\n", encoding="ascii")
        output = self._run("pgbench", "-n", "-M", "prepared", "-c", clients, "-j", min(clients, 2),
                           *(["-t", each] if each else ["-T", seconds]), "-f", script)
        transactions = int(re.search(r"^number of transactions actually processed: (\d+)", output, re.M)[1])
        per_second = float(re.search(r"^tps = ([\d.]+) \(without initial connection time\)", output, re.M)[1])
        return transactions, transactions / per_second


def machine(server):
    """What the report says about the machine and the server, as (name, value) pairs."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    meminfo = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    mhz = re.search(r"^cpu MHz\s*: (.*)$", cpuinfo, re.M)
    system = os.uname()
    settings = server.psql("""
        SELECT name || ' = ' || current_setting(name) FROM pg_settings
        WHERE source = 'configuration file'
            AND name !~ 'listen|unix_socket|port|^lc_|DateStyle|TimeZone|log_|dynamic|search_config'
        ORDER BY name""")
    return [
        ("CPU", f"{os.cpu_count()} × {model[1] if model else system.machine}"
                + (f", {float(mhz[1]) / 1000:.1f} GHz" if mhz else "")),
        ("virtual machine", "yes" if re.search(r"^flags.*\bhypervisor\b", cpuinfo, re.M) else "no"),
        ("memory", f"{int(re.search(r'^MemTotal: *([0-9]+)', meminfo, re.M)[1]) / 2**20:.1f} GiB"),
        ("kernel", f"{system.sysname} {system.release}"),
        ("server", server.value("SELECT version()")),
        ("snowflake", server.value("SELECT extversion FROM pg_extension WHERE extname = 'snowflake'")),
        ("settings", ", ".join(row[0] for row in settings))]
