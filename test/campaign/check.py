"""Check a recorded history of IDs against what doc/promises.md promises.  It uses nothing of the campaigns, which use it.

    python3 test/campaign/check.py HISTORY ...         text, or the same compressed by gzip; several are added up

The form of a history is described in doc/promises.md.  The last line of the output is "N passed, N failed".
"""

import array
import bisect
import gzip
import itertools
import statistics
import sys

MAX_ID = (1 << 63) - 1
SLICE = 1000000


class Damaged(Exception):
    """This is not a history."""


class History:
    """Calls and faults; those that a file has, if there is one.  Eight bytes an ID, and a tuple a call."""

    def __init__(self, path=None):
        self.path = path
        self.calls = {}         # IDs in the order they were received in, by (line, session, asked, got)
        self.faults = []        # (kind, at, over)
        self.ids = 0
        self.outside = 0
        if path is None:
            return
        opener = gzip.open if path.endswith('.gz') else open
        with opener(path, 'rt', encoding='ascii') as file:
            if next(file, '').rstrip('\n') != '# snowflake history 1':
                raise Damaged(f'{path}: the first line is not "# snowflake history 1"')
            for number, text in enumerate(file, 2):
                if not text.startswith('#'):
                    self.take(number, text.rstrip('\n').split('\t'))

    def take(self, number, fields):
        try:
            if fields[0] == '!':
                _, kind, at, over = fields
                self.faults.append((kind, int(at), int(over)))
                return
            line, session, asked, got, one = fields
            asked, got, one = int(asked), int(got), int(one)
        except ValueError as error:
            raise Damaged(f'{self.path}, line {number}: {error}') from None
        if got < asked:
            raise Damaged(f'{self.path}, line {number}: it was got before it was asked for')
        self.add((line, session, asked, got), (one, ))

    def add(self, call, ids):
        self.ids += len(ids)
        known = [one for one in ids if 0 <= one <= MAX_ID]
        self.outside += len(ids) - len(known)
        if known:
            self.calls.setdefault(call, array.array('q')).extend(known)

    def twice(self):
        """IDs that were received more than once, by whomever: a slice of all at a time, so that little memory is enough."""
        if not self.calls:
            return []
        low = min(map(min, self.calls.values()))
        span = max(map(max, self.calls.values())) - low + 1
        slices = [array.array('q') for _ in range(self.ids // SLICE + 1)]
        for ids in self.calls.values():
            for one in ids:
                slices[(one - low) * len(slices) // span].append(one)
        return [b for part in slices for a, b in itertools.pairwise(sorted(part)) if a == b]

    def out_of_order_in_sessions(self):
        """IDs of a session that are not larger than one it received before."""
        newest, found = {}, []
        for (line, session, _, _), ids in self.calls.items():
            for one in ids:
                if one <= newest.get((line, session), -1):
                    found.append(one)
                else:
                    newest[line, session] = one
        return found

    def out_of_order_in_lines(self):
        """Smallest IDs of calls that are not larger than one of a call that had ended before they began."""
        found = []
        for line in {key[0] for key in self.calls}:
            calls = [(asked, got, min(ids), max(ids)) for (of, _, asked, got), ids in self.calls.items() if of == line]
            ended, newest, i = sorted(calls, key=lambda call: call[1]), -1, 0
            for asked, _, smallest, _ in sorted(calls):
                while ended[i][1] < asked:
                    newest = max(newest, ended[i][3])
                    i += 1
                if smallest <= newest:
                    found.append(smallest)
        return found

    def until_next(self):
        """For each fault: its kind, and the nanoseconds from its end to the first ID that was asked for since, or None."""
        calls = sorted((asked, got) for _, _, asked, got in self.calls)
        first = list(itertools.accumulate((got for _, got in reversed(calls)), min))[::-1]
        found = ((kind, over, bisect.bisect_left(calls, (over,))) for kind, _, over in self.faults)
        return [(kind, first[i] - over if i < len(first) else None) for kind, over, i in found]


def main(paths):
    if not paths or paths[0].startswith('-'):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    passed = failed = ids = 0
    waits = {}
    for path in paths:
        try:
            history = History(path)
        except (Damaged, OSError, EOFError) as error:
            print(f'not ok - {error}')
            failed += 1
            continue
        ids += history.ids
        for kind, wait in history.until_next():
            if wait is not None:
                waits.setdefault(kind, []).append(wait)
        for what, found in (('IDs that came twice', history.twice()),
                            ('IDs out of order in a session', history.out_of_order_in_sessions()),
                            ('calls out of order in a line', history.out_of_order_in_lines()),
                            ('numbers that are no IDs', [None] * history.outside),
                            ('histories without an ID', [path] * (history.ids == 0))):
            print(f'{"not ok" if found else "ok"} - {path}: {len(found)} {what}', *map(str, found[:5]))
            failed += bool(found)
            passed += not found
    print(f'# {ids} IDs, {sum(map(len, waits.values()))} faults')
    for kind, times in sorted(waits.items()):
        print(f'# {kind}: {len(times)}, next ID after {statistics.median(times) / 1e6:.0f} ms (p50), '
              f'{max(times) / 1e6:.0f} ms (worst)')
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
