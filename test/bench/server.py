"""A throw-away server, and what runs against it.  Standard library only."""

import contextlib
import os
import pathlib
import re
import subprocess


class Server:
    """A PostgreSQL server in a new directory, reachable through a socket there only."""

    def __init__(self, bindir, directory, settings):
        self.bindir = pathlib.Path(bindir)
        self.directory = pathlib.Path(directory)
        self.directory.mkdir()
        self.environment = {**os.environ, "LC_ALL": "C", "PGHOST": str(self.directory), "PGPORT": "5432",
                            "PGUSER": "postgres", "PGDATABASE": "postgres", "PGTZ": "UTC"}
        self._run("initdb", "-D", self.directory / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        with open(self.directory / "data/postgresql.conf", "a", encoding="ascii") as conf:
            settings = {"listen_addresses": "", "unix_socket_directories": self.directory, **settings}
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self._run("pg_ctl", "-D", self.directory / "data", "-l", self.directory / "log", "-w", "start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._run("pg_ctl", "-D", self.directory / "data", "-m", "fast", "-w", "stop")

    def _run(self, program, *arguments, stdin=None):
        # pg_ctl's server inherits its output, which must therefore not be a pipe
        output = subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE
        done = subprocess.run([self.bindir / program, *map(str, arguments)], input=stdin, env=self.environment,
                              stdout=output, stderr=subprocess.PIPE if program != "pg_ctl" else None,
                              text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr}")
        return done.stdout

    def psql(self, sql, **variables):
        """Rows of all results, as lists of text, of statements sent one by one in a new session."""
        arguments = ["-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        for name, value in variables.items():
            arguments += ["-v", f"{name}={value}"]
        return [line.split("\t") for line in self._run("psql", *arguments, stdin=sql).splitlines()]

    @contextlib.contextmanager
    def database(self, name):
        """Statements are for that database meanwhile."""
        before, self.environment["PGDATABASE"] = self.environment["PGDATABASE"], name
        try:
            yield
        finally:
            self.environment["PGDATABASE"] = before

    def start(self, sql):
        """Run a statement in a session of its own; returns the process, to be waited for."""
        return subprocess.Popen([self.bindir / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql], env=self.environment)

    def value(self, sql):
        return self.psql(sql)[0][0]

    def pgbench(self, sql, clients, seconds, each=None):
        """(transactions, seconds they took), less the time to connect.  With many connections the time is up before all are
        made, so that each of them runs a number of transactions then."""
        script = self.directory / "pgbench"
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
    system = os.uname()
    settings = server.psql("""
        SELECT name || ' = ' || current_setting(name) FROM pg_settings
        WHERE source = 'configuration file'
            AND name !~ 'listen|unix_socket|port|^lc_|DateStyle|TimeZone|log_|dynamic|search_config|preload'
        ORDER BY name""")
    return [
        ("CPU", f"{os.cpu_count()} × {model[1] if model else system.machine}"),
        ("virtual machine", "yes" if re.search(r"^flags.*\bhypervisor\b", cpuinfo, re.M) else "no"),
        ("memory", f"{int(re.search(r'^MemTotal: *([0-9]+)', meminfo, re.M)[1]) / 2**20:.1f} GiB"),
        ("load", f"{os.getloadavg()[0]:.1f} when it began"),
        ("server", server.value("SELECT version()")),
        ("settings", ", ".join(row[0] for row in settings))]
