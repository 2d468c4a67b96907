"""What the clients in Python share: turns, as clients.py asks for them."""

import sys
import time


def rows_of(count):
    return [(n, f"the item of row {n}") for n in range(count)]


def serve(empty, make, ways):
    """For each line "WAY TABLE ROWS" insert as many rows into the empty table, and print the seconds that took."""
    print("ready", flush=True)
    for line in sys.stdin:
        way, table, count = line.split()
        empty(table)
        rows = make(int(count))
        start = time.perf_counter()
        ways[way](table, rows)
        print(time.perf_counter() - start, flush=True)
