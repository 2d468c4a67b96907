"""What every part of the benchmarks needs."""

import dataclasses
import pathlib
import time

from server import Server

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "16GB", "min_wal_size": "2GB", "checkpoint_timeout": "1h",
            "work_mem": "64MB", "max_parallel_workers_per_gather": 0, "jit": "off", "autovacuum": "off",
            "max_connections": 600}
MINTING = {"shared_preload_libraries": "snowflake", "snowflake.node_id": 1}
STARTED = time.monotonic()


@dataclasses.dataclass
class Bench:
    """What is measured, and how much of it."""
    bindir: str
    work: pathlib.Path
    quick: bool
    full: bool
    main: Server = None         # with the layout "twitter"
    pgedge: Server = None       # or none
    version: int = 0            # of PostgreSQL, such as 18

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


def plural(connections):
    return f"{connections} connection{'s' if connections > 1 else ''}"
