"""What all campaigns have in common: options, one fault after the other, what is checked, the report.

A campaign has a site with servers, clients that write down what they receive, and kinds of faults.  Its result is TAP.
"""

import argparse
import glob
import gzip
import json
import math
import multiprocessing
import random
import signal
import statistics
import time
import traceback

import psycopg2

import clients
import results
from check import History
from servers import Down, busy

NO_MINT_LIMIT_S = 90
SHOWN = 10              # of IDs that are wrong
# Once a fault is over, that is, a server serves and its clock is right, how long it may take until the next ID: at the
# median of all faults, and after each.  A busy machine has as much more as it has processes for a processor.
MEDIAN_BOUND_S = 0.3
BOUND_S = 2


def span(ns):
    """A length of time for people."""
    for unit, size in (('days', 86400e9), ('h', 3600e9), ('min', 60e9), ('s', 1e9), ('ms', 1e6)):
        if abs(ns) >= size:
            return f'{ns / size:.1f} {unit}'
    return f'{ns / 1e3:.0f} us'


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


class Parser(argparse.ArgumentParser):
    """The options that all campaigns take."""

    def __init__(self, minutes, rate):
        super().__init__()
        self.add_argument('--work', required=True)
        self.add_argument('--bindir', required=True)
        self.add_argument('--code', default='unknown', help='a digest of what is installed')
        self.add_argument('--minutes', type=float, default=minutes, help='for how long faults are injected')
        self.add_argument('--seed', type=int, default=random.SystemRandom().randrange(1 << 31))
        self.add_argument('--rate', type=float, default=rate, help='IDs per second asked for while nothing is wrong')
        self.add_argument('--only', type=lambda text: [kind.strip() for kind in text.split(',')], help='kinds of faults')
        self.add_argument('--history', help='file for all that was recorded, compressed')


class Campaign:
    """One campaign.  Those of each kind define what raises NotImplementedError here.

    name            for people
    least           how many faults and IDs a minute make a campaign
    passing         errors that end a fault early, which then counts as not applied
    boundless       kinds of faults after which the next ID may be late; None: it may after all
    place           a name for what a call has as its place
    """

    name = None
    least = 0, 0
    passing = ()
    boundless = None
    longest_pause_s = 2.5
    place = '{}'.format

    def __init__(self, options):
        self.options = options
        self.order = random.Random(options.seed)    # which fault comes next
        self.rng = random.Random()                  # what it does
        self.context = multiprocessing.get_context('fork')
        self.site = None
        self.shared = []                # for one client, or for some
        self.workers = []
        self.events = []
        self.began = None
        self.passed = 0
        self.failed = []                # what was checked in vain
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupt)

    def interrupt(self, *_):
        self.interrupted = True

    def check(self, what, good):
        self.passed += bool(good)
        if not good:
            self.failed.append(what)
        print(f'{"ok" if good else "not ok"} - {what}', flush=True)

    # --- from beginning to end

    def main(self):
        print(f'{self.name}, seed {self.options.seed}, {self.options.minutes:g} minutes', flush=True)
        began = time.monotonic()
        broken = None
        try:
            self.set_up()
            self.inject()
        except Down as error:
            broken = str(error)
        except Exception as error:      # the verdict on what was recorded is still wanted
            traceback.print_exc()
            broken = repr(error)
        broken = self.end() or broken
        with open(self.site.path('events.jsonl'), 'w', encoding='utf-8') as file:
            file.writelines(json.dumps(event, default=str) + '\n' for event in self.events)
        if self.interrupted:
            broken = broken or 'interrupted'
        self.check(f'it ran to its end: {broken or "yes"}', not broken)
        self.report(time.monotonic() - began)
        print(f'{self.passed} passed, {len(self.failed)} failed', flush=True)
        return 1 if self.failed else 0

    def set_up(self):
        """Start servers and clients."""
        raise NotImplementedError

    def kinds(self):
        """Pairs of a name and a method: faults of a round, some of them twice."""
        raise NotImplementedError

    def settle(self, event):
        """All serve again: event['over'] is when, and they have minted since when this returns."""
        raise NotImplementedError

    def start_clients(self, workers):
        self.workers = [self.context.Process(target=worker.run, daemon=True) for worker in workers]
        for worker in self.workers:
            worker.start()

    def end(self):
        """End the clients, then all servers; return what went wrong with that."""
        wrong = None
        for shared in self.shared:
            shared.stop.value = 1
        for worker in self.workers:
            worker.join(clients.HUNG_AFTER_S + 10)
            if worker.is_alive():
                worker.kill()
                wrong = 'a client does not end'
        self.site.stop_all()
        return wrong

    # --- faults

    def chosen_kinds(self):
        kinds = self.kinds()
        unknown = set(self.options.only or ()).difference(name for name, _ in kinds)
        if unknown:
            raise Down(f'no such kind of fault here: {", ".join(sorted(unknown))}')
        return [(name, method) for name, method in kinds if not self.options.only or name in self.options.only]

    def first_round(self, kinds):
        return kinds

    def inject(self):
        kinds = self.chosen_kinds()
        self.began = time.monotonic()
        left = None
        while time.monotonic() < self.began + self.options.minutes * 60 and not self.interrupted:
            if not left:
                self.order.shuffle(kinds)
                left = self.first_round(kinds[:]) if left is None else kinds[:]
            name, method = left.pop()
            # what a fault does depends on the seed and its number only, not on how long those before it took
            self.rng.seed(f'{self.options.seed}/{len(self.events)}')
            event = self.event(name)
            try:
                event['applied'] = method(event) is not False
            except self.passing as error:
                event['applied'] = False
                event['detail'].append(str(error).split('\n', maxsplit=1)[0])
            self.settle(event)
            print(f'{time.monotonic() - self.began:7.1f} s  {name}{": " if event["detail"] else ""}'
                  f'{", ".join(event["detail"])}{"" if event["applied"] else " (not applied)"}  [{self.count_ids()} IDs]', flush=True)
            self.pause()
        time.sleep(1)

    def event(self, name):
        event = {'kind': name, 'detail': [], 'at': time.monotonic_ns(), 'applied': True, 'busy': busy()}
        self.events.append(event)
        return event

    def count_ids(self):
        return sum(sum(shared.ids) for shared in self.shared)

    def pause(self):
        time.sleep(log_uniform(self.rng, 0.2, self.longest_pause_s))

    def some_step(self, low=1e6, high=3600e9):
        """Of a clock, in nanoseconds: an hour at most."""
        return int(log_uniform(self.rng, low, high))

    def hold(self, low, high):
        time.sleep(self.rng.uniform(low, high))

    def stepped(self, event):
        """A server, and how far its clock is to step."""
        server, step = self.any_server(event), self.some_step()
        event['detail'].append(span(step))
        return server, step

    def any_server(self, event):
        raise NotImplementedError

    def keep_step(self, server, step_ns):
        """A step forward: the IDs that are minted meanwhile cannot be taken back."""
        server.set_base(server.base_ns + step_ns)

    def clock_forward(self, event):
        self.keep_step(*self.stepped(event))
        # a step that nobody mints in is none
        self.hold(0.1, 1)

    def clock_back(self, event):
        """Undone, since the generator rightly refuses to mint far ahead of the clock."""
        server, step = self.stepped(event)
        server.step_clock(server.base_ns - step)
        self.hold(0.5, 3)
        server.set_base(server.base_ns)

    def clock_jitter(self, event):
        server = self.any_server(event)
        for _ in range(20):
            if self.rng.random() < 0.5:
                self.keep_step(server, self.some_step(1e5, 2e7))
            else:
                server.step_clock(server.base_ns - self.some_step(1e5, 5e7))
            self.hold(0.005, 0.08)
        server.set_base(server.base_ns)

    def wait_for_ids(self, event, shared, server, servers):
        """Wait for a call that began after the fault was over and brought an ID; "server" is to serve it."""
        began = time.monotonic()
        looked = False
        while not any(start > event['over'] for start in shared.last_start):
            waited = time.monotonic() - began
            if waited > NO_MINT_LIMIT_S / 3 and not looked:
                looked = True
                self.look_at_stall(event, servers())
            if waited > NO_MINT_LIMIT_S:
                raise Down(f'no ID for {NO_MINT_LIMIT_S} s after "{event["kind"]}", see stall.txt and {server().log}')
            # something may still go down: an aborted start, a crash that follows from the fault
            for each in servers():
                if not each.alive():
                    each.start(must=False)
            time.sleep(0.02)

    @staticmethod
    def truncate(server, dbname):
        """What was minted is written down elsewhere."""
        try:
            if server.query("SELECT pg_total_relation_size('minted') > 48000000", dbname=dbname)[0][0]:
                server.query('TRUNCATE minted', dbname=dbname)
        except psycopg2.Error:
            pass

    def look_at_stall(self, event, servers):
        """Write down what servers say of themselves while nothing is minted."""
        with open(self.site.path('stall.txt'), 'a', encoding='utf-8') as file:
            file.write(f'# {event["kind"]}: {event["detail"]}\n')
            for server in servers:
                file.write(f'server {server.number}\n')
                for question in ('SELECT * FROM snowflake_status',
                                 'SELECT pid, backend_type, state, wait_event_type, wait_event, query FROM pg_stat_activity',
                                 'SELECT *, pg_current_wal_insert_lsn() FROM pg_stat_replication'):
                    try:
                        file.writelines(f'  {row}\n' for row in server.query(question, dbname=server.database))
                    except psycopg2.Error as error:
                        file.write(f'  {question}: {error}')

    # --- the report

    def fault_at(self, ns):
        before = [event for event in self.events if event['applied'] and event['at'] <= ns]
        if not before:
            return 'before the first fault'
        event = before[-1]
        return f'{(ns - event["at"]) / 1e9:.3f} s after "{event["kind"]}" ({", ".join(event["detail"])})'

    def line_of(self, place):
        """The line of a place: calls of one line ascend, whatever their sessions."""
        return 0

    def wait_of(self, event, wait):
        """The seconds until the next ID after a fault, of nanoseconds; None if there was none."""
        return None if wait is None else wait / 1e9

    def history(self):
        """All that was received, and the faults that were applied."""
        history = History()
        for path in sorted(glob.glob(self.site.path('client*.ids'))):
            for session, asked, got, _, place, ids in clients.read_calls(path):
                history.add((f'line{self.line_of(place)}', session, asked, got), ids)
        history.faults = [(event['kind'], event['at'], event['over']) for event in self.over()]
        return history

    def over(self):
        return [event for event in self.events if event['applied'] and 'over' in event]

    def waits(self, history):
        """Pairs of a fault and the seconds until the next ID, or None."""
        return [(event, self.wait_of(event, wait)) for event, (_, wait) in zip(self.over(), history.until_next())]

    def show(self, ids):
        """Who received these."""
        shown = set(sorted(ids)[:SHOWN])
        for path in glob.glob(self.site.path('client*.ids')):
            for session, _, got, kind, place, received in clients.read_calls(path):
                for one in shown.intersection(received):
                    print(f'  {one}: session {session}, {self.place(place)}, {clients.KINDS[kind]}, {self.fault_at(got)}')

    def report(self, seconds):
        history = self.history()
        if self.options.history:
            self.write_history(history)
        waits = self.waits(history)
        print('\nuntil the next ID once it was over')
        for kind in sorted({event['kind'] for event, _ in waits}):
            some = [wait or 0 for event, wait in waits if event['kind'] == kind]
            print(f'  {kind:42} {len(some):4} {max(some):8.3f} s')
        print(f'IDs recorded: {history.ids} in {len(history.calls)} calls')
        errors = self.errors_of_clients()
        twice, in_sessions, in_lines = history.twice(), history.out_of_order_in_sessions(), history.out_of_order_in_lines()
        self.show([*twice, *in_sessions, *in_lines])
        self.check(f'{len(twice)} duplicates', not twice)
        self.check(f'{len(in_sessions)} order violations inside sessions', not in_sessions)
        self.check(f'{len(in_lines)} order violations across sessions', not in_lines)
        self.check(f'{errors.get("23505", 0)} unique violations met by clients', '23505' not in errors)
        self.check_more(errors)
        if self.boundless is not None:
            self.check_waits(waits)
        if not self.options.only:
            faults, ids = (int(count * self.options.minutes) for count in self.least)
            self.check(f'{len(waits)} faults, at least {faults} make a campaign', len(waits) >= faults)
            self.check(f'{history.ids} IDs, at least {ids} make a campaign', history.ids >= ids)
        results.write(self, seconds=seconds, ids=history.ids, twice=len(twice) + errors.get('23505', 0),
                      disorder=len(in_sessions) + len(in_lines), waits=[wait for _, wait in waits if wait is not None],
                      failed=self.failed)

    def check_more(self, errors):
        """What is checked besides.  errors: how many clients met, by SQLSTATE."""

    def errors_of_clients(self):
        errors, samples = {}, {}
        for path in glob.glob(self.site.path('client*.json')):
            with open(path, encoding='utf-8') as file:
                seen = json.load(file)
            for code, count in seen['errors'].items():
                errors[code] = errors.get(code, 0) + count
                samples.setdefault(code, seen['samples'][code])
        print('errors met by clients, by SQLSTATE')
        for code, count in sorted(errors.items(), key=lambda item: -item[1]):
            print(f'  {code}  {count:7}  {samples[code][:120]}')
        return errors

    def check_waits(self, waits):
        """Did the next ID come in time after each fault?"""
        waits = [(event, BOUND_S * 100 if wait is None else wait) for event, wait in waits
                 if event['kind'] not in self.boundless]
        median = statistics.median(wait for _, wait in waits) if waits else 0
        load = statistics.median(event['busy'] for event, _ in waits) if waits else 1
        self.check(f'until the next ID: {median:.3f} s at the median of {len(waits)} faults, {load:.1f} processes for a processor',
                   median <= MEDIAN_BOUND_S * load)
        late = [(event, wait) for event, wait in waits if wait > BOUND_S * event['busy']]
        for event, wait in late:
            print(f'  {wait:.3f} s, {event["busy"]:.1f} processes for a processor: {self.fault_at(event["over"])}')
        self.check(f'{len(late)} faults after which it took longer than {BOUND_S} s', not late)

    def write_history(self, history):
        """In the form that doc/promises.md describes."""
        with gzip.open(self.options.history, 'wt', compresslevel=1, encoding='ascii') as file:
            file.write('# snowflake history 1\n')
            for call, ids in history.calls.items():
                head = '\t'.join(map(str, call))
                file.writelines(f'{head}\t{one}\n' for one in ids)
            file.writelines(f'!\t{kind}\t{at}\t{over}\n' for kind, at, over in history.faults)
