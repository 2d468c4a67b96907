"""How many node IDs, how long a lease: a simulation of fleets.  simulation.py has the rules.

    python3 doc/fleet/simulate.py                        the figures of doc/fleet.md, in some minutes
    python3 doc/fleet/simulate.py --servers 200 --nodes 256 --lease 5 --crashes 0.1
    python3 doc/fleet/simulate.py --check                the simulation itself: "N passed, N failed"
    python3 doc/fleet/simulate.py --check --ignore-until     a rule is broken: it has to fail

The same arguments give the same output.
"""

import argparse
import dataclasses
import multiprocessing
import sys

from simulation import Options, Simulation

FLEETS = {10: (64, 1024, 65536), 1000: (64, 1024, 65536), 10000: (1024, 65536)}
LEASES = (1, 10, 60)
HELP = {
    "servers": "how many; default: 10, 1,000 and 10,000 in turn",
    "nodes": "node IDs of the layout; default: 64, 1,024 and 65,536 in turn",
    "lease": "minutes; default: 1, 10 and 60 in turn",
    "days": "that are simulated",
    "crashes": "of a server, a day",
    "stops": "clean ones of a server, a day",
    "crash_downtime": "seconds",
    "stop_downtime": "seconds",
    "outages": "of the coordinator, a day",
    "outage": "minutes that one takes",
    "clock_sigma": "standard deviation of the clocks, ms",
    "far_share": "share of the servers whose clock is far off",
    "far_by": "minutes by which it is, every second one ahead, the others behind",
    "round_trip": "ms that a request takes",
    "join": "minutes in which all servers start, before anything is measured",
    "seed": "of the random numbers",
    "ignore_until": "take a node ID from whoever has it, and begin at the own clock",
}


def simulate(options):
    return Simulation(options).run().result()


def span(seconds):
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"


def number(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def percent(share):
    if 0 < share < 1e-5:
        return "<0.001 %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def table(results):
    """Print a Markdown table, line by line, of what may take its time."""
    for line in lines_of(results):
        print("| " + " | ".join(line) + " |", flush=True)


def lines_of(results):
    header = ["servers", "node IDs", "lease", "node IDs taken", "requests a second", "after an outage", "hours later",
              "time without", "the longest", "skipped"]
    yield header
    yield ["---:"] * len(header)
    for options, result in results:
        yield [f"{options.servers:,}", f"{options.nodes:,}", f"{options.lease:g} min", f"{result['node IDs']:,}",
               number(result["requests a second"]), f"{result['peak after an outage']:,}",
               f"{result['peak later']:,}", percent(result["share of time without"]),
               span(result["longest without"]), percent(result["share skipped"])]


def check(options):
    """What must hold of every simulation, and of some whose figures are known."""
    outcomes = []

    def report(what, holds):
        outcomes.append(holds)
        print(("ok: " if holds else "FAILED: ") + what, flush=True)

    ignore = options.ignore_until
    small = Options(seed=options.seed, ignore_until=ignore, days=3)
    cases = {
        "10 servers, 64 node IDs": dict(servers=10, nodes=64),
        "300 servers, leases of a minute that end in each outage": dict(servers=300, lease=1),
        "300 servers that crash every hour, clocks of half of them far off": dict(servers=300, crashes=24, far_share=0.5),
        "300 servers, 290 node IDs, some clocks far off": dict(servers=300, nodes=290, far_share=0.05),
        "300 servers that start at once": dict(servers=300, join=0.001),
    }
    for name, changes in cases.items():
        result = simulate(dataclasses.replace(small, **changes))
        report(f"{name}: {result['overlaps']} of {result['grants']} grants overlap; {result['taken from others']} node IDs "
               "were taken from servers alive", result["overlaps"] == 0)
        report(f"{name}: no node ID beyond the layout", result["node IDs"] <= changes.get("nodes", small.nodes))
    if ignore:
        return outcomes

    quiet = dataclasses.replace(small, servers=50, nodes=64, crashes=0, stops=0, outages=0, far_share=0)
    result = simulate(quiet)
    report("without faults: as many node IDs as servers, none without one", result["node IDs"] == 50 and
           result["share of time without"] == 0 and result["share skipped"] == 0)
    report("without faults: two requests in a lease and server",
           abs(result["requests a second"] / (2 * 50 / (quiet.lease * 60)) - 1) < 0.001)
    stops = simulate(dataclasses.replace(quiet, stops=24))
    report("only clean stops: as many node IDs as servers, nothing skipped",
           stops["node IDs"] == 50 and stops["share skipped"] == 0)
    crashes = simulate(dataclasses.replace(quiet, crashes=1, nodes=1024))
    share = 0.75 * quiet.lease / (24 * 60)
    report("only crashes: three quarters of a lease skipped at each", abs(crashes["share skipped"] / share - 1) < 0.1)
    few = simulate(dataclasses.replace(quiet, nodes=25))
    report("half the node IDs: half of the time without one", abs(few["share of time without"] - 0.5) < 0.001)
    once = dataclasses.replace(small, servers=100)
    report("the same seed, the same figures", simulate(once) == simulate(once))
    report("another seed, others", simulate(once) != simulate(dataclasses.replace(once, seed=once.seed + 1)))
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Options):
        name, text = "--" + field.name.replace("_", "-"), HELP[field.name]
        if field.type is bool:
            parser.add_argument(name, action="store_true", help=text)
        elif field.name in ("servers", "nodes", "lease"):
            parser.add_argument(name, type=field.type, help=text)
        else:
            parser.add_argument(name, type=field.type, default=field.default, help=f"{text}; default {field.default:.3g}")
    parser.add_argument("--check", action="store_true", help="check the simulation itself")
    arguments = vars(parser.parse_args())
    wants_check = arguments.pop("check")
    given = {name: value for name, value in arguments.items() if value is not None}

    if wants_check:
        outcomes = check(Options(**given))
        print(f"{sum(outcomes)} passed, {len(outcomes) - sum(outcomes)} failed")
        return 0 if all(outcomes) else 1

    runs = [Options(**{"servers": servers, "nodes": nodes, "lease": lease, **given})
            for servers in ([given["servers"]] if "servers" in given else FLEETS)
            for nodes in ([given["nodes"]] if "nodes" in given else FLEETS.get(servers, (64, 1024, 65536)))
            for lease in ([given["lease"]] if "lease" in given else LEASES)]
    with multiprocessing.Pool() as pool:
        table(zip(runs, pool.imap(simulate, runs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
