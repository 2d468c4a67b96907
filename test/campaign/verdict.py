"""The verdict: read what the clients recorded, look for duplicates and for IDs out of order.

Memory: eight bytes an ID, plus a tuple a call.  IDs are sorted a client at a time, and compared across clients a slice of the
range at a time.
"""

import array
import bisect
import itertools
import operator

from clients import CALL, DATABASES, KINDS, SESSIONS_PER_CLIENT

SLICE = 1000000
SHOWN = 10


def read_calls(path):
    """Yield (session, start, end, kind, database, IDs) for each call of a file."""
    with open(path, 'rb', buffering=1 << 20) as f:
        while head := f.read(CALL.size):
            session, count, start, end, kind, database = CALL.unpack(head)
            ids = array.array('Q')
            ids.fromfile(f, count)
            yield session, start, end, kind, database, ids


def increases(ids):
    return all(map(operator.lt, ids, itertools.islice(ids, 1, None)))


class Verdict:
    """places names what a call has as its database; calls whose places are of one line have to ascend across sessions."""

    def __init__(self, paths, places=DATABASES, line_of=lambda place: 0):
        self.paths = paths
        self.places = places
        self.line_of = line_of
        self.ids = 0
        self.by_kind = [0] * len(KINDS)
        self.sessions = set()
        self.lines = {}             # that of each session
        self.calls = []             # (start, end, smallest, largest, session)
        self.duplicates = 0
        self.duplicate_ids = set()  # some of them
        self.session_violations = 0
        self.session_samples = []
        self.order_violations = 0
        self.order_samples = []

    def judge(self):
        sorted_ids = [self.read_client(path) for path in self.paths]
        self.find_duplicates(sorted_ids)
        self.find_disorder()

    def failed(self):
        return bool(self.duplicates or self.session_violations or self.order_violations)

    def read_client(self, path):
        """Check the order inside sessions; return the client's IDs, sorted."""
        all_ids = array.array('Q')
        session_now, newest = None, 0
        for session, start, end, kind, database, ids in read_calls(path):
            if session != session_now:
                session_now, newest = session, 0
                self.sessions.add(session)
                self.lines[session] = self.line_of(database)
            if ids[0] <= newest or not increases(ids):
                before, shown = newest, len(self.session_samples) >= SHOWN
                for one in ids:
                    if one <= before:
                        self.session_violations += 1
                        if not shown:
                            shown = True
                            self.session_samples.append(
                                f'session {session} ({KINDS[kind]}, {self.places[database]}) got {one} after {before}')
                    before = max(before, one)
            smallest, largest = min(ids), max(ids)
            newest = max(newest, largest)
            self.calls.append((start, end, smallest, largest, session))
            self.by_kind[kind] += len(ids)
            all_ids.extend(ids)
        self.ids += len(all_ids)
        if not increases(all_ids):
            all_ids = array.array('Q', sorted(all_ids))
        return all_ids

    def find_duplicates(self, sorted_ids):
        if not any(sorted_ids):
            return
        # Limits such that no client has more than SLICE IDs between two of them.
        limits = sorted({ids[i] for ids in sorted_ids for i in range(0, len(ids), SLICE)})
        limits.append(1 << 64)
        at = [0] * len(sorted_ids)
        for limit in limits:
            part = []
            for i, ids in enumerate(sorted_ids):
                end = bisect.bisect_left(ids, limit, at[i])
                part.extend(ids[at[i]:end])
                at[i] = end
            part.sort()
            if not increases(part):
                for a, b in itertools.pairwise(part):
                    if a == b:
                        self.duplicates += 1
                        if len(self.duplicate_ids) < SHOWN:
                            self.duplicate_ids.add(a)

    def find_disorder(self):
        """If a call ended before another of its line began, its IDs have to be smaller."""
        by_line = {}
        for call in self.calls:
            by_line.setdefault(self.lines.get(call[4]), []).append(call)
        for calls in by_line.values():
            self.find_disorder_in(calls)

    def find_disorder_in(self, calls):
        by_end = sorted(calls, key=operator.itemgetter(1))
        newest, source, i = -1, None, 0
        for call in sorted(calls):
            while by_end[i][1] < call[0]:
                if by_end[i][3] > newest:
                    newest, source = by_end[i][3], by_end[i]
                i += 1
            if call[2] <= newest:
                self.order_violations += 1
                if len(self.order_samples) < SHOWN:
                    self.order_samples.append(
                        f'session {call[4]} got {call[2]} in a call begun {(call[0] - source[1]) / 1e6:.3f} ms after'
                        f' session {source[4]} had got {newest}')

    def duplicate_sources(self, fault_at):
        """Who received the duplicates that are shown."""
        found = {one: [] for one in self.duplicate_ids}
        for path in self.paths:
            for session, start, end, kind, database, ids in read_calls(path):
                if not self.duplicate_ids.isdisjoint(ids):
                    for position, one in enumerate(ids):
                        if one in found:
                            found[one].append(
                                f'client {session // SESSIONS_PER_CLIENT} session {session} {self.places[database]}'
                                f' {KINDS[kind]} row {position + 1} of {len(ids)}, at {end}: {fault_at(end)}')
        return found

    def first_duplicate(self):
        """When one of the duplicates that are shown, which are the smallest, was received for the second time."""
        received = {one: [] for one in self.duplicate_ids}
        for path in self.paths:
            for _, _, end, _, _, ids in read_calls(path):
                for one in self.duplicate_ids.intersection(ids):
                    received[one].append(end)
        return min(sorted(ends)[1] for ends in received.values())

    def waits(self, events, until):
        """Yield for each fault that was applied: the event, the longest time without an ID from its beginning to the
        next one's, and the time from its end to the first ID that was asked for since, or None; in nanoseconds.
        """
        ends = sorted(call[1] for call in self.calls)
        by_start = sorted((call[0], call[1]) for call in self.calls)
        starts = [call[0] for call in by_start]
        for event, following in zip(events, events[1:] + [None]):
            if not event['applied']:
                continue
            stop = following['at'] if following else until
            low, high = bisect.bisect_left(ends, event['at']), bisect.bisect_right(ends, stop)
            received = [event['at']] + ends[low:high] + [stop]
            gap = max(map(operator.sub, received[1:], received))
            first = None
            if 'over' in event:
                low = bisect.bisect_left(starts, event['over'])
                got = min((end for _, end in by_start[low:low + 200]), default=None)
                first = None if got is None else got - event['over']
            yield event, gap, first

    def gaps(self, events, until):
        """For each kind of fault: how many, the longest time without an ID, and from a fault's end to the first ID."""
        result = {}
        for event, gap, first in self.waits(events, until):
            count, longest, slowest = result.get(event['kind'], (0, 0, 0))
            result[event['kind']] = (count + 1, max(longest, gap), max(slowest, first or 0))
        return result
