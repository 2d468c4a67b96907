"""A fleet of servers that lease node IDs, simulated: the rules of src/lease/lease.c and src/lease/lessee.c.

It makes the figures of doc/fleet.md.  Not simulated: clocks that change, a coordinator that is slow or loses its data,
answers that are lost, attempts that wait for an answer in an outage, servers that mint ahead of their clock.

Times are integers: ms, which are also the ticks.  A server's clock is the true time plus what it is off by.

A server that renews undisturbed does so every half of a lease, so what it has asked and was granted up to some time is
computed when it matters, by settle(): a week of 10,000 servers would otherwise be 200 million events.  Everything else is
an event: starts, ends, outages, and each request of a server that takes a node ID.  Likewise for servers that wait for a
node ID: see wait().
"""

import bisect
import collections
import dataclasses
import heapq
import itertools
import random

SECOND, HOUR, DAY = 1000, 3600 * 1000, 24 * 3600 * 1000
LOOKS, RETRY = 4, 2 * SECOND        # as in lease.c and lessee.c
FAR_RETRY = 60 * SECOND             # see wait()
AFTER_OUTAGE = 10 * SECOND          # in which its peak is looked for


@dataclasses.dataclass
class Options:
    servers: int = 1000
    nodes: int = 1024
    lease: float = 10               # minutes
    days: float = 7
    crashes: float = 1              # of a server, a day
    stops: float = 1 / 7            # of a server, a day
    crash_downtime: float = 30      # seconds
    stop_downtime: float = 10       # seconds
    outages: float = 1              # of the coordinator, a day
    outage: float = 5               # minutes
    clock_sigma: float = 50         # ms
    far_share: float = 0.01         # of the servers
    far_by: float = 60              # minutes, ahead or behind
    round_trip: int = 2             # ms
    join: float = 60                # minutes in which the servers start; what is measured begins then
    seed: int = 1
    ignore_until: bool = False      # a rule is broken: grants overlap


class Record:
    """A node ID at the coordinator.  While its holder renews it, live, until is that of the holder, settled."""
    __slots__ = ("node", "holder", "start", "until", "live", "version", "grants")

    def __init__(self, node):
        self.node, self.holder, self.live, self.version, self.grants = node, None, False, 0, []


class Server:
    __slots__ = ("number", "off", "life", "up_since", "record", "until", "due", "known_lost", "no_node_since",
                 "waits_from", "own", "start", "stolen", "in_step")

    def __init__(self, number, off):
        self.number, self.off, self.life, self.own = number, off, 0, set()
        self.up_since = self.waits_from = None
        self.forget()

    def forget(self):
        """Memory is lost."""
        self.record, self.until, self.due, self.start = None, -1, None, None
        self.in_step = False            # with others, after an outage
        self.stolen = False             # the record is somebody else's, which the server need not know yet
        self.no_node_since = None       # when the gate closes, or did, if nothing happens


class Simulation:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.lease = max(1, round(options.lease * 60 * SECOND))
        self.half = self.lease // 2
        self.spread = self.lease // 8
        self.retry = min(RETRY, max(self.lease // 8, 100))
        self.begin, self.end = round(options.join * 60 * SECOND), round(options.days * DAY)
        self.near = round(6 * options.clock_sigma) + 10     # no ordinary clock is off by more
        self.events, self.order = [], itertools.count()
        self.records = []
        self.ended = []                 # heap of (until, node, version) of records that nobody renews
        self.waiters = []               # sorted (phase of the attempts, server)
        self.wake_at = None
        self.outage_end = 0
        self.close = {}                 # who renews shortly before the end, after an outage; as keys, whose order is theirs
        self.reset()

        far = round(options.far_share * options.servers)
        offs = [round(self.random.gauss(0, options.clock_sigma)) for _ in range(options.servers)]
        for i, number in enumerate(self.random.sample(range(options.servers), far)):
            offs[number] += round(options.far_by * 60 * SECOND) * (1 if i % 2 else -1)
        self.epoch = 2 * DAY + round(options.far_by * 60 * SECOND)      # no tick is negative
        self.servers = [Server(i, off) for i, off in enumerate(offs)]
        self.behind = [s for s in self.servers if s.off < -self.near]

    def reset(self):
        """Begin to measure."""
        self.requests = 0
        self.in_second = collections.Counter()      # requests other than undisturbed renewals
        self.up = self.without = self.longest = 0
        self.granted = self.skipped = 0
        self.peak_after = self.peak_later = 0
        self.stolen = self.outgrown = 0

    def at(self, time, what, *arguments):
        heapq.heappush(self.events, (time, next(self.order), what, arguments))

    def tick(self, server, time):
        return time + server.off + self.epoch

    def time_of(self, server, tick):
        return tick - server.off - self.epoch

    def ask(self, time):
        self.requests += 1
        self.in_second[time // SECOND] += 1

    # Servers

    def run(self):
        for server in self.servers:
            self.at(self.random.randrange(max(1, self.begin)), self.start, server, server.life)
        self.at(self.begin, self.measure)
        for i in range(round(self.options.days * self.options.outages)):
            every = DAY / self.options.outages
            length = round(self.options.outage * 60 * SECOND)
            self.at(round(i * every + self.random.random() * max(0, every - length)), self.begin_outage, length)
        while self.events and self.events[0][0] < self.end:
            time, _, what, arguments = heapq.heappop(self.events)
            what(time, *arguments)
        self.finish()
        return self

    def measure(self, time):
        for server in self.servers:
            self.settle(server, time)
            self.account_waiting(server, time)
            if server.up_since is not None:
                server.up_since = time
        self.reset()

    def start(self, time, server, life):
        if server.life != life:
            return
        server.up_since = server.no_node_since = time
        self.at(time, self.attempt, server, server.life)
        ends = [(self.random.expovariate(rate / DAY), what) for rate, what in
                ((self.options.crashes, self.crash), (self.options.stops, self.stop)) if rate > 0]
        if ends:
            lasts, what = min(ends, key=lambda end: end[0])
            self.at(time + round(lasts) + 1, what, server)

    def stop(self, time, server):
        """A clean stop gives back the exact end, if the coordinator can be reached and it has not ended."""
        self.settle(server, time)
        end = None
        if server.record is not None and time >= self.outage_end:
            self.ask(time)
            if not server.stolen:
                end = min(max(self.tick(server, time), server.start - 1), server.until)
        self.down(time, server, end, self.options.stop_downtime)

    def crash(self, time, server):
        self.settle(server, time)
        self.down(time, server, None, self.options.crash_downtime)

    def down(self, time, server, end, lasts):
        self.leave(time, server, end)
        self.account_waiting(server, time)
        if server.waits_from is not None and not self.is_far(server):
            del self.waiters[bisect.bisect_left(self.waiters, (server.waits_from % self.retry, server.number))]
        server.waits_from = None
        self.node_is_back(time, server)
        self.up += time - server.up_since
        server.up_since = None
        server.life += 1
        server.forget()
        self.at(time + round(lasts * SECOND), self.start, server, server.life)

    def leave(self, time, server, end):
        """The server does not use its grant any more.  end: the end that is given back."""
        if server.record is None:
            return
        self.granted += server.until - server.start + 1
        if end is None:
            self.skipped += max(0, server.until - max(self.tick(server, time), server.start - 1))
        else:
            self.granted -= server.until - end
            server.until = end
        if not server.stolen:
            self.not_renewed(time, server)
        server.record = None

    def not_renewed(self, time, server):
        record = server.record
        record.until, record.live = server.until, False
        record.version += 1
        record.grants[-1][1] = record.until
        self.add_ended(time, record)

    def add_ended(self, time, record):
        heapq.heappush(self.ended, (record.until, record.node, record.version))
        self.wake(time)

    def node_is_back(self, time, server):
        if server.no_node_since is not None and server.no_node_since < time:
            lasted = time - max(server.no_node_since, self.begin)
            self.without += max(0, lasted)
            self.longest = max(self.longest, lasted)
        server.no_node_since = None

    # Renewing

    def settle(self, server, time):
        """Do what an undisturbed holder has done up to some time."""
        if server.record is not None and not server.stolen and server.due <= time:
            if server.in_step:
                self.requests += 1
                server.until = self.tick(server, server.due) + self.lease
                server.due += self.half - self.early()
                server.in_step = False
            if server.due <= time:
                renewals = (time - server.due) // self.half + 1
                server.due += renewals * self.half
                server.until = self.tick(server, server.due - self.half) + self.lease
                self.requests += renewals

    def early(self):
        """By how much the renewal after a disturbance is before half of the lease."""
        return self.random.randrange(self.spread + 1)

    def begin_outage(self, time, length):
        self.outage_end = time + length
        self.close.clear()
        self.peak_later = max(self.peak_later, self.peak(time))
        for server in self.servers:
            self.account_waiting(server, time)
            if server.waits_from is not None and not self.is_far(server):
                server.waits_from = self.after_outage(server.waits_from)
            self.settle(server, time - 1)
            if server.record is None or server.stolen or server.due >= self.outage_end:
                continue
            server.due = self.after_outage(server.due)
            server.in_step = True
            left = server.until - self.tick(server, server.due)
            if left < 0:
                server.no_node_since = self.time_of(server, server.until) + 1
                self.not_renewed(time, server)
                server.stolen = True    # or as good as
                self.at(server.due, self.attempt, server, server.life)
            elif left < 2 * self.near:
                self.close[server] = None
        self.at(self.outage_end, self.note_outage_end)
        self.at(self.outage_end + AFTER_OUTAGE, self.note_peak_after, self.outage_end)

    def after_outage(self, attempt):
        """The first attempt that the coordinator answers, of one that is repeated."""
        return max(attempt, attempt + -((attempt - self.outage_end) // self.retry) * self.retry)

    def note_outage_end(self, time):
        for server in self.servers:
            if server.record is not None and not server.stolen and server.due < time + AFTER_OUTAGE:
                self.in_second[server.due // SECOND] += 1

    def note_peak_after(self, time, end):
        seconds = range(end // SECOND, time // SECOND + 1)
        self.peak_after = max(self.peak_after, max(self.in_second[s] for s in seconds) + self.waiting_rate())

    def peak(self, time):
        """The most undisturbed renewals in a second of the next half of a lease."""
        for server in self.servers:
            self.settle(server, time - 1)
        seconds = collections.Counter(server.due // SECOND for server in self.servers
                                      if server.record is not None and not server.stolen)
        return max(seconds.values(), default=0) + self.waiting_rate()

    def waiting_rate(self):
        return len(self.waiters) * SECOND // self.retry

    # Taking: an attempt, its up to LOOKS lists, and the writes that follow from them

    def attempt(self, time, server, life):
        if server.life != life:
            return
        if time < self.outage_end:
            self.at(self.after_outage(time), self.attempt, server, life)
            return
        if server.record is not None and self.tick(server, time) <= server.until:
            time += self.options.round_trip     # a renewal that fails
            self.ask(time)
        self.at(time + self.options.round_trip, self.look, server, life, self.tick(server, time), 1)

    def look(self, time, server, life, now, looks):
        """now: the server's clock when the attempt began."""
        if server.life != life:
            return
        self.ask(time)
        record, is_new = self.choose(server, now, time)
        if record is None:
            self.wait(time, server)
            return
        start = now if is_new or self.options.ignore_until else max(record.until + 1, now)
        self.at(time + self.options.round_trip, self.take, server, life, now, looks, record,
                None if is_new else (record.version, record.until), start)

    def choose(self, server, now, time):
        """The node ID to take, and whether it has no record yet."""
        ignore = self.options.ignore_until
        own = [node for node in server.own if ignore or self.records[node].until < now]
        if own:
            return self.records[min(own)], False

        best = None
        while self.ended and self.records[self.ended[0][1]].version != self.ended[0][2]:
            heapq.heappop(self.ended)
        if self.ended and (ignore or self.ended[0][0] < now):
            best = self.records[self.ended[0][1]]
        # Who renews has an end ahead of every clock that is not ahead, unless its own is behind.
        holders = itertools.chain(self.behind, self.close)
        if ignore or now > time + self.epoch + self.near:
            recovering = time < self.outage_end + self.retry
            soonest = time + self.epoch - self.near + (0 if recovering else self.half)
            if now > soonest and (best is None or best.until > soonest):
                holders = self.servers
        for holder in holders:
            if holder.record is None or holder.stolen:
                continue
            self.settle(holder, time)
            if (ignore or holder.until < now) and (best is None or holder.until < best.until):
                best = holder.record
                best.until = holder.until
        if best is not None:
            return best, False
        if len(self.records) < self.options.nodes:
            return Record(len(self.records)), True
        return None, False

    def take(self, time, server, life, now, looks, record, expected, start):
        if server.life != life:
            return
        self.ask(time)
        if record.live:
            self.settle(record.holder, time)
            record.until = record.holder.until
        if expected is None:
            was_done = record.node == len(self.records)
        else:
            was_done = expected == (record.version, record.until)
        if was_done:
            if expected is None:
                self.records.append(record)
            if record.live:
                self.steal(record)
            if record.holder is not None:
                record.holder.own.discard(record.node)
            server.own.add(record.node)
            record.holder, record.start, record.until = server, start, start + self.lease
            record.grants.append([record.start, record.until])
            self.leave(time, server, None)
            self.node_is_back(min(time, self.end), server)
            record.live, record.version = True, record.version + 1
            server.record, server.start, server.until, server.stolen = record, record.start, record.until, False
            server.due = max(time + 1, self.time_of(server, server.until) - self.half - self.early())
            server.in_step = False
        else:
            self.look_again(time, server, life, now, looks)

    def look_again(self, time, server, life, now, looks):
        if looks < LOOKS:
            self.at(time + self.options.round_trip, self.look, server, life, now, looks + 1)
        else:
            self.at(time + self.retry, self.attempt, server, life)

    def steal(self, record):
        """A record is taken from a server that renews it, and will notice when it does so next."""
        holder = record.holder
        self.stolen += 1
        record.live = False
        record.grants[-1][1] = holder.until
        holder.stolen = True
        holder.no_node_since = self.time_of(holder, holder.until) + 1
        self.at(holder.due, self.attempt, holder, holder.life)

    # Waiting for a node ID

    def is_far(self, server):
        return abs(server.off) > self.near

    def wait(self, time, server):
        """
        None is free.  The attempts that follow find none either, until one ends: they are counted only, and the server
        whose attempt is next after that end is woken.  Those whose clocks are far off try for themselves, but less often.
        """
        if self.is_far(server):
            self.requests += FAR_RETRY // self.retry - 1
            self.at(time + FAR_RETRY, self.attempt, server, server.life)
            return
        server.waits_from = time + self.retry
        bisect.insort(self.waiters, (server.waits_from % self.retry, server.number))
        self.wake(time)

    def account_waiting(self, server, time):
        if server.waits_from is not None and server.waits_from < time:
            attempts = -((server.waits_from - time) // self.retry)
            self.requests += attempts
            server.waits_from += attempts * self.retry

    def wake(self, time):
        """See to it that whoever is next to look gets what ends first."""
        if not self.waiters or not self.ended:
            return
        time = max(time, self.outage_end, self.ended[0][0] - self.epoch + 1)
        if self.wake_at is None or time < self.wake_at:
            self.wake_at = time
            self.at(time, self.wake_next)

    def wake_next(self, time):
        if time != self.wake_at:
            return
        self.wake_at = None
        while self.ended and self.records[self.ended[0][1]].version != self.ended[0][2]:
            heapq.heappop(self.ended)
        if time < self.outage_end or not self.ended or self.ended[0][0] - self.epoch >= time:
            self.wake(time)
        elif self.waiters:
            place = bisect.bisect_left(self.waiters, (time % self.retry, -1)) % len(self.waiters)
            server = self.servers[self.waiters.pop(place)[1]]
            self.account_waiting(server, time)
            self.at(server.waits_from, self.attempt, server, server.life)
            self.wake(server.waits_from + 5 * self.options.round_trip)
            server.waits_from = None

    # The result

    def finish(self):
        self.peak_later = max(self.peak_later, self.peak(self.end))
        for server in self.servers:
            self.settle(server, self.end)
            self.account_waiting(server, self.end)
            self.node_is_back(self.end, server)
            if server.up_since is not None:
                self.up += self.end - server.up_since
            if server.record is not None:
                self.granted += self.tick(server, self.end) - server.start + 1
                if not server.stolen:
                    server.record.grants[-1][1] = server.until

    def overlaps(self):
        """How many grants begin before an earlier one of the same node ID has ended."""
        count = 0
        for record in self.records:
            reached = -1
            for start, until in sorted(record.grants):
                count += start <= reached
                reached = max(reached, until)
        return count

    def result(self):
        return {
            "node IDs": len(self.records),
            "requests a second": self.requests / ((self.end - self.begin) / SECOND),
            "peak after an outage": self.peak_after,
            "peak later": self.peak_later,
            "share of time without": self.without / max(1, self.up),
            "longest without": self.longest / SECOND,
            "share skipped": self.skipped / max(1, self.granted),
            "taken from others": self.stolen,
            "grants": sum(len(record.grants) for record in self.records),
            "overlaps": self.overlaps(),
        }
