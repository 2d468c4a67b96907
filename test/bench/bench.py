"""The benchmarks; run.sh starts it.

Every figure compares subjects that were measured in turns on one machine in one
run, so that whatever disturbs one disturbs the others, too.  A figure is the
median of several rounds, with minimum and maximum; a ratio is taken within each
round first.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import signal
import sys

from clients import clients
from common import SETTINGS, Bench, progress
from inserting import bulk, insert
from minting import bare, mint, tail
from public import public
from queries import decode, shapes, time_range
from report import table
from server import Server, machine

PARTS = {"mint": mint, "bare": bare, "tail": tail, "insert": insert, "bulk": bulk, "shapes": shapes, "range": time_range,
         "decode": decode, "public": public, "clients": clients}


def write_report(bench, sections, facts, note):
    targets = [target.row() for section in sections for target in section.targets]
    if bench.quick:
        note = "Made at a small scale, to see that it works: the figures mean nothing."
    text = ["# Benchmarks\n",
            "For whoever asks whether such keys are fast enough, or chooses between them and `bigserial`, `uuidv7()` or others: "
            "the first table is the answer, the sections say how it was found. Nobody needs this page to use the extension.\n"]
    if note:
        text += [f"**{note}**\n"]
    text += [table(["question", "answer", "more"], [[*row, f"[{section.title}](#{section.anchor()})"]
                                                   for section in sections for row in section.short]).replace("---:", "---")]
    for section in sections:
        text += [f"## {section.title}\n", section.text]
    text += ["## What must hold\n", table(["", "target", "measured", ""], targets),
             "## How it was measured\n",
             f"By `bash test/bench/run.sh` on {datetime.date.today()}. The subjects were measured in turns, in several rounds; a "
             "figure is the median (minimum–maximum) of the rounds. A ratio is taken within each round, between neighbours in "
             "time. Times without a ratio say little on another machine.\n",
             table(["machine", ""], facts).replace("---:", "---")]
    path = bench.work / "report" / "benchmarks.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(text), encoding="utf-8")
    print(table(["", "target", "measured", ""], targets))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--tree", required=True)
    parser.add_argument("--note")
    parser.add_argument("--pgedge-bindir")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])      # none: all
    options = parser.parse_args()
    if options.publish and (options.quick or options.parts):
        parser.error("only the whole report is worth publishing")
    bench = Bench(options.bindir, options.work, options.quick, options.full)

    # a signal unwinds the stack, which stops the servers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (bench.work / "bench.pid").write_text(str(os.getpid()), encoding="ascii")
    progress("start a server")
    with contextlib.ExitStack() as servers:
        bench.main = servers.enter_context(bench.server("main"))
        bench.prepare(bench.main)
        bench.version = int(bench.main.value("SHOW server_version_num")) // 10000
        if options.pgedge_bindir:
            bench.pgedge = servers.enter_context(Server(options.pgedge_bindir, bench.work / "pgedge-data", {
                **SETTINGS, "shared_preload_libraries": "snowflake", "snowflake.node": 1}))
            bench.pgedge.psql("CREATE EXTENSION snowflake")
        facts = machine(bench.main) + [("tree", options.tree)]
        sections = [part(bench) for name, part in PARTS.items() if not options.parts or name in options.parts]
    write_report(bench, sections, facts, options.note)
    progress("done")


if __name__ == "__main__":
    main()
