"""The campaign over a fleet: see README.md.

The clients write down what they receive as those of test/torture do, and its verdict judges that.
"""

import argparse
import glob
import json
import math
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback

import psycopg2

# tests of other kinds share their servers, clients and verdict
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torture'))

import clients                          # noqa: E402
from coordinators import KINDS          # noqa: E402
import faults                           # noqa: E402
from proxy import Proxy                 # noqa: E402
from history import write_history      # noqa: E402
import record                           # noqa: E402
from servers import Down, Site, busy    # noqa: E402
from verdict import Verdict, read_calls     # noqa: E402

FAULTS_A_MINUTE, IDS_A_MINUTE = 3, 10000    # the fewest that make a campaign
STEADY_LEASES = 4
LEASE_S = 6                             # on a busy machine as much longer as it is busy, up to
LONGEST_LEASE_S = 30


class FleetSite(Site):
    def __init__(self, options, bindir, url):
        super().__init__(options.work, bindir, 'snowflake', False, False)
        self.lease_s = options.lease
        self.url = url


class Client(clients.Client):
    """One that stays with a place of the fleet, whichever server has it."""

    def connect(self, endpoint):
        self.database = endpoint            # what is noted down: the server
        return psycopg2.connect(host=f'{self.work}/s{endpoint}', port=self.shared.port.value, user='postgres',
                                dbname=faults.DATABASE)


class ServerNames:
    def __getitem__(self, number):
        return f'server {number}'


class Campaign:
    def __init__(self, options):
        self.options = options
        self.passed = 0
        self.failed = []                    # what was checked in vain
        if not glob.glob(f'{options.work}/inst/**/snowflake_{options.coordinator}.so', recursive=True):
            raise Down(f'the module of {options.coordinator} was not built here')
        self.context = multiprocessing.get_context('fork')
        kind = KINDS[options.coordinator]
        self.site = FleetSite(options, options.bindir, self.url)
        self.coordinator = kind(self.site, min(options.members or kind.most_members, kind.most_members))
        self.proxy = Proxy(self.context, kind.kind, faults.MEMBERS, self.coordinator.client_ports())
        self.ports = [self.proxy.ports(slot) for slot in range(faults.MEMBERS)]
        self.places = []
        for _ in range(faults.MEMBERS + faults.GUESTS):
            shared = clients.Shared(self.context, faults.MEMBERS + faults.GUESTS)
            shared.port = self.context.RawValue('i', 0)
            self.places.append(shared)
        options.clients = len(self.places)
        self.workers = [self.context.Process(target=lambda i=i: Client(i, options, self.places[i],
                                                                       'snowflake_next()').run(), daemon=True)
                        for i in range(options.clients)]
        self.injector = faults.Injector(self.site, options, self.coordinator, self.proxy, self.places)

    def url(self, server):
        return self.coordinator.url(self.ports[server.member], server)

    def check(self, what, good):
        self.passed += bool(good)
        if not good:
            self.failed.append(what)
        print(f'{"ok" if good else "not ok"} - {what}', flush=True)

    def run(self):
        began = time.monotonic()
        broken = None
        try:
            self.proxy.start()
            for worker in self.workers:
                worker.start()
            self.injector.set_up()
            self.steady()
            if self.options.renewals:
                self.renew()
            else:
                self.injector.run()
        except Down as error:
            broken = str(error)
        except Exception as error:      # the verdict on what was recorded is still wanted
            traceback.print_exc()
            broken = repr(error)
        finally:
            for place in self.places:
                place.stop.value = 1
            for worker in self.workers:
                if worker.pid:
                    worker.join(clients.HUNG_AFTER_S + 10)
                    if worker.is_alive():
                        worker.kill()
                        broken = broken or 'a client does not end'
            self.site.stop_all()
            self.coordinator.end(signal.SIGKILL)
            self.proxy.stop()
        with open(self.site.path('events.jsonl'), 'w') as f:
            f.writelines(json.dumps(event, default=str) + '\n' for event in self.injector.events)
        if self.options.history:
            write_history(self.options.history, sorted(glob.glob(self.site.path('client*.ids'))), self.injector.events,
                          lambda number: f'server{number}')
        self.check(f'it ran to its end: {broken or "yes"}', broken is None)
        self.report(time.monotonic() - began)

    def steady(self):
        """Requests that a server sends while nothing is wrong."""
        time.sleep(self.options.lease)
        before = list(self.proxy.requests)
        connections = list(self.proxy.connections)
        leases = [server.status('leases')[0] for server in self.injector.members()]
        time.sleep(STEADY_LEASES * self.options.lease)
        per_lease = [(after - b) / STEADY_LEASES for after, b in zip(self.proxy.requests, before)]
        connected = [(after - b) / STEADY_LEASES for after, b in zip(self.proxy.connections, connections)]
        print(f'requests a lease and server: {", ".join(f"{n:.2f}" for n in per_lease)};'
              f' connections: {", ".join(f"{n:.2f}" for n in connected)}')
        taken = [server.status('leases')[0] for server in self.injector.members()] != leases
        most = 2 * self.coordinator.requests_a_renewal
        # one renewal more falls into the time now and then
        bound = most + self.coordinator.requests_a_renewal / STEADY_LEASES
        self.check(f'in the steady state {sum(per_lease) / len(per_lease):.2f} requests a lease and server,'
                   f' at most {most}{" (not judged: a lease was taken meanwhile)" if taken else ""}',
                   taken or max(per_lease) <= bound)

    def renew(self):
        """Many renewals: the clock is stepped by half a lease, again and again."""
        server = self.injector.servers[0]
        conn = server.connect(faults.DATABASE)
        first = rss = None
        with conn.cursor() as cur:
            def status():
                # who mints has the keeper look at the clock: several steps at once would be a jump
                cur.execute('SELECT lease_renewals, leases, snowflake_next() FROM snowflake_stats')
                return cur.fetchone()[:2]
            pid = server.lessee()
            start, taken = status()
            done = start
            step = max(self.options.renewals // 10, 1)
            while done < start + self.options.renewals:
                server.set_base(server.base_ns + int(0.55e9 * self.options.lease))
                os.kill(pid, signal.SIGHUP)
                end = time.monotonic() + 10
                while (now := status())[0] == done and time.monotonic() < end:
                    time.sleep(0.002)
                if now[0] == done:
                    raise Down('a lease is not renewed')
                before, done = done, now[0]
                if (done - start) // step > (before - start) // step:
                    with open(f'/proc/{pid}/status') as f:      # its own memory, not what it shares
                        rss = next(int(line.split()[1]) for line in f if line.startswith('RssAnon'))
                    first = first or rss
                    print(f'{done - start} renewals: {rss} kB', flush=True)
        conn.close()
        print(f'{now[1] - taken} leases taken meanwhile')
        self.check(f'the lessee\'s memory does not grow over {done - start} renewals: {first} kB, {rss} kB',
                   rss <= first + 128)

    def report(self, seconds):
        events = [event for event in self.injector.events if event['applied']]

        def fault_at(ns):
            before = [event for event in events if event['at'] <= ns]
            if not before:
                return 'before the first fault'
            event = before[-1]
            return f'{(ns - event["at"]) / 1e9:.3f} s after "{event["kind"]}" ({", ".join(event["detail"])})'

        verdict = Verdict(sorted(glob.glob(self.site.path('client*.ids'))), ServerNames(), lambda number: number)
        verdict.judge()
        print(f'\n{self.options.coordinator}, {len(self.coordinator.members)} of it, seed {self.options.seed},'
              f' {seconds:.0f} s')
        kinds = {}
        for event in events:
            kinds.setdefault(event['kind'], []).append(event['until_all_mint'] or 0)
        for kind, times in sorted(kinds.items()):
            print(f'  {kind:40} {len(times):4}   all mint again after at most {max(times):5.1f} s')
        print(f'IDs recorded: {verdict.ids} in {len(verdict.calls)} calls of {len(verdict.sessions)} sessions,'
              f' {self.site.count} servers')
        errors, samples = {}, {}
        for path in glob.glob(self.site.path('client*.json')):
            with open(path) as f:
                seen = json.load(f)
            for code, count in seen['errors'].items():
                errors[code] = errors.get(code, 0) + count
                samples.setdefault(code, seen['samples'][code])
        for code, count in sorted(errors.items(), key=lambda item: -item[1]):
            print(f'  {code}  {count:7}  {samples[code][:120]}')
        for one, sources in verdict.duplicate_sources(fault_at).items() if verdict.duplicates else ():
            print(f'  {one}: node ID {one >> 12 & 1023}')
            for source in sources:
                print(f'    {source}')
        if verdict.duplicates:
            self.first_duplicate(verdict, events)
        for sample in verdict.session_samples + verdict.order_samples:
            print(f'  {sample}')
        self.check(f'{verdict.duplicates} duplicates among {verdict.ids} IDs of the fleet', verdict.duplicates == 0)
        self.check(f'{verdict.session_violations} order violations within a session', verdict.session_violations == 0)
        self.check(f'{verdict.order_violations} order violations within a server', verdict.order_violations == 0)
        self.check(f'{errors.get("23505", 0)} unique violations met by clients', '23505' not in errors)
        for event in events:
            for what, good in event['expected']:
                if not good:
                    print(f'  {event["kind"]} ({", ".join(event["detail"])}): not so: {what}')
        expected = [good for event in events for _, good in event['expected']]
        self.check(f'{len(expected)} expectations of the page on fleets, {expected.count(False)} not met',
                   all(expected))
        if not self.options.only and not self.options.renewals:
            count = sum(event['kind'] != 'start' for event in events)
            # most of a fault's time is that leases end
            fewest = FAULTS_A_MINUTE * self.options.minutes * min(1, LEASE_S / self.options.lease)
            self.check(f'{count} faults', count >= fewest)
            self.check(f'{verdict.ids} IDs', verdict.ids >= IDS_A_MINUTE * self.options.minutes)
        record.write_record(self.options, f'fleet {self.options.coordinator}', seconds=seconds, ids=verdict.ids,
                            duplicates=verdict.duplicates + errors.get('23505', 0),
                            disorder=verdict.session_violations + verdict.order_violations, failed=self.failed,
                            faults=record.by_kind((event['kind'], event['until_all_mint'], None)
                                                  for event in events if event['kind'] != 'start'),
                            interrupted=self.options.interrupted())

    def first_duplicate(self, verdict, events):
        """How long it took until the fleet issued an ID twice."""
        seen, first = {}, None
        for path in verdict.paths:
            for call in read_calls(path):
                for one in call[5]:
                    before = seen.setdefault(one, call[2])
                    if before != call[2]:
                        at = max(before, call[2])
                        first = at if first is None else min(first, at)
        if first is not None and events:
            began = events[0]['at']
            print(f'the first ID that came twice did {(first - began) / 1e9:.1f} s after the first server minted,'
                  f' after {sum(event["at"] <= first for event in events) - 1} faults')


def usual_lease_s():
    return min(math.ceil(LEASE_S * busy()), LONGEST_LEASE_S)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument('--work', required=True)
    parser.add_argument('--bindir', required=True)
    parser.add_argument('--coordinator', choices=sorted(KINDS), default='etcd')
    parser.add_argument('--members', type=int, help='of the coordinator: three if it can have several')
    parser.add_argument('--minutes', type=float, default=2)
    parser.add_argument('--seed', type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument('--lease', type=int, default=usual_lease_s(), help='in seconds')
    parser.add_argument('--rate', type=float, default=4000, help='IDs a second asked for while nothing is wrong')
    parser.add_argument('--only', type=lambda s: [k.strip() for k in s.split(',')])
    parser.add_argument('--history', help='file for all that was recorded, compressed')
    parser.add_argument('--renewals', type=int, help='no faults, but so many renewals of one lease')
    record.add_arguments(parser)
    return parser.parse_args()


def main():
    options = arguments()
    stopped = []
    options.interrupted = lambda: bool(stopped)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    print(f'{options.coordinator}, seed {options.seed}, {options.minutes:g} minutes', flush=True)
    try:
        campaign = Campaign(options)
    except Down as error:
        print(f'fleet: {error}')
        print('0 passed, 1 failed')
        return 1
    campaign.run()
    if stopped:
        campaign.check('interrupted', False)
    print(f'{campaign.passed} passed, {len(campaign.failed)} failed')
    return 1 if campaign.failed else 0


if __name__ == '__main__':
    sys.exit(main())
