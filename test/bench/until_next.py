"""How long it takes until the next ID after a fault, and how far IDs are ahead of the server's clock meanwhile.

    bash test/run.sh torture next                               all faults, about ten minutes
    bash test/run.sh torture next --only SIG --tries 200        the four signals, so often each
    bash test/run.sh torture next --record /var/tmp/next.json   and each try of each fault

It is no campaign: one server with its defaults, one session that mints without a pause, and no verdict.  The server's
clock is stepped by the shim.  Signals come while clients connect, mint once and leave, without a pause, and a backend
that gets one is minting.  What a server that starts takes for itself does not count: there the time begins when it
accepts a connection.  It contains the start of a new keeper, which is a process like that of a client: how long
clients took to connect meanwhile, at most, tells what the machine makes of that.

The fields of the record are those of torture/record.py that apply; the load of the machine when it began and ended; and
for each fault its name, the milliseconds of each try in their order, those that clients took at most to connect meanwhile,
how many mints were refused, and how far IDs were ahead of the server's clock at most, and for how many seconds.
"""

import argparse
import contextlib
import datetime
import json
import os
import signal
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torture'))

import psycopg2     # noqa: E402

from record import FORM, add_arguments, server_version  # noqa: E402
from servers import Server, Site, wait_for              # noqa: E402

HOUR_S = 3600
YEAR_S = 365 * 86400
EPOCH_MS, TIME_SHIFT = 1288834974657, 22        # of the default layout
GIVE_UP_S = 100
BOUND_MS = 300          # what a fault may cost beyond the server's own restart


class Minter(threading.Thread):
    """Mints without a pause, and writes down what came of it."""

    def __init__(self, bench):
        super().__init__(daemon=True)
        self.bench = bench
        self.got = []           # (asked, got, seconds ahead of the server's clock)
        self.connected = []     # when
        self.errors = []        # (when, text), of statements
        self.over = False

    def run(self):
        conn = None
        while not self.over:
            try:
                if conn is None or conn.closed:
                    conn = self.bench.server.connect()
                    self.connected.append(time.monotonic())
                asked = time.monotonic()
                with conn.cursor() as cur:
                    cur.execute('SELECT snowflake_next()')
                    one = int(cur.fetchone()[0])
                ahead = ((one >> TIME_SHIFT) + EPOCH_MS) / 1000 - (time.time() + self.bench.offset)
                self.got.append((asked, time.monotonic(), ahead))
            except psycopg2.Error as error:
                if error.pgcode and conn is not None and not conn.closed:
                    self.errors.append((time.monotonic(), str(error).split('\n')[0]))
                if conn is not None and conn.closed:
                    conn = None
            time.sleep(0.002)


class Victim(threading.Thread):
    """A backend that mints without a pause, until it is gone."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.conn = server.connect()
        self.pid = self.conn.info.backend_pid
        self.start()

    def run(self):
        with contextlib.suppress(psycopg2.Error), self.conn.cursor() as cur:
            while True:
                cur.execute('SELECT snowflake_next()')


class Bench:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.load = os.getloadavg()
        self.measured = []
        self.connects = []      # when a client began to connect, and how long it took
        self.site = Site(options.work, options.bindir, 'snowflake', False, False)
        self.server = Server(self.site, 0)
        self.server.extension_settings = lambda: {'shared_preload_libraries': 'snowflake', 'snowflake.node_id': '1'}
        self.offset = 0
        self.server.initdb()
        self.server.configure()
        self.server.start()
        self.server.query('CREATE EXTENSION snowflake')
        self.server.query('SELECT snowflake_next()')
        self.minter = Minter(self)
        self.minter.start()

    def set_clock(self, seconds):
        self.offset = seconds
        self.server.step_clock(int(seconds * 1e9))

    def first_since(self, at):
        """When the first ID came that was asked for since, or nothing after GIVE_UP_S."""
        while time.monotonic() < at + GIVE_UP_S:
            for asked, got, _ in reversed(self.minter.got[-2000:]):
                if asked < at:
                    break
                first = got
            else:
                asked = at
            if self.minter.got and self.minter.got[-1][0] >= at:
                return first
            time.sleep(0.005)
        return None

    def keeper(self):
        try:
            rows = self.server.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'snowflake keeper'")
        except psycopg2.Error:
            return None
        return rows[0][0] if rows else None

    def gap(self, begin, end):
        times = [got for _, got, _ in self.minter.got if begin <= got <= end]
        return max(b - a for a, b in zip([begin] + times, times + [end]))

    @contextlib.contextmanager
    def clients(self):
        """They connect, mint once and leave meanwhile."""
        over = threading.Event()

        def come_and_go():
            while not over.is_set():
                at = time.monotonic()
                try:
                    conn = self.server.connect()
                    self.connects.append((at, time.monotonic() - at))
                    with contextlib.closing(conn), conn.cursor() as cur:
                        cur.execute('SELECT snowflake_next()')
                except psycopg2.Error:
                    time.sleep(0.01)

        threads = [threading.Thread(target=come_and_go) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    # --- faults: each returns the seconds until an ID

    def terminate(self, pid, is_over):
        """How long there was no ID, until the process has ended and one more ID has come."""
        at = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        wait_for(is_over, GIVE_UP_S, f'process {pid} does not end')
        end = self.first_since(time.monotonic())
        return GIVE_UP_S if end is None else self.gap(at, end)

    def terminate_keeper(self):
        """Until there is another keeper, too."""
        with self.clients():
            wait_for(lambda: self.keeper() is not None, GIVE_UP_S, 'no keeper')
            pid = self.keeper()
            return self.terminate(pid, lambda: self.keeper() not in (None, pid))

    def terminate_backend(self):
        with self.clients():
            victim = Victim(self.server)
            time.sleep(0.05)
            took = self.terminate(victim.pid, lambda: not victim.is_alive())
            victim.conn.close()
        return took

    def since_connected(self, at):
        """The seconds from the first connection of the minter since then to the first ID that was asked for on it."""
        wait_for(lambda: self.minter.connected[-1] > at, GIVE_UP_S, 'no connection')
        at = next(when for when in self.minter.connected if when > at)
        end = self.first_since(at)
        return GIVE_UP_S if end is None else end - at

    def crash(self, pid):
        os.kill(pid, signal.SIGKILL)
        return self.since_connected(time.monotonic())

    def kill_keeper(self):
        with self.clients():
            wait_for(lambda: self.keeper() is not None, GIVE_UP_S, 'no keeper')
            return self.crash(self.keeper())

    def kill_backend(self):
        with self.clients():
            victim = Victim(self.server)
            time.sleep(0.05)
            took = self.crash(victim.pid)
            victim.join()
            victim.conn.close()
        return took

    def restart(self, how):
        at = time.monotonic()
        self.server.stop(how)
        self.server.bring_up()
        return self.since_connected(at)

    def restart_after_step(self):
        self.after(-9)
        time.sleep(0.3)
        return self.restart('fast')

    def after(self, seconds):
        self.set_clock(self.offset + seconds)
        at = time.monotonic()
        end = self.first_since(at)
        return GIVE_UP_S if end is None else end - at

    def step_twice(self):
        self.after(-9)
        time.sleep(0.3)
        return self.after(-9)

    def right_again(self):
        self.set_clock(self.offset - HOUR_S)
        time.sleep(1)
        self.server.query('SELECT snowflake_accept_clock()')
        time.sleep(3)
        return self.after(HOUR_S)

    def boot(self):
        """The row is of another boot."""
        try:
            self.server.query("UPDATE snowflake_keeper.reservation SET machine = 'another'")
        except psycopg2.Error:
            pass                # what is kept there is lost by a boot in any case
        self.server.stop('immediate')
        self.set_clock(self.offset - 6 * YEAR_S)
        self.server.start()
        time.sleep(2)
        return self.after(6 * YEAR_S)

    def held(self):
        """For a second, while the clock goes back by an hour: how long there was no ID until it is let go and beyond."""
        wait_for(lambda: self.keeper() is not None, GIVE_UP_S, 'no keeper')
        keeper = self.keeper()
        os.kill(keeper, signal.SIGSTOP)
        self.set_clock(self.offset - HOUR_S)
        time.sleep(1)
        os.kill(keeper, signal.SIGCONT)
        at = time.monotonic()
        end = self.first_since(at)
        self.set_clock(self.offset + HOUR_S)
        return GIVE_UP_S if end is None else end - at

    def measure(self, name, fault, tries):
        took, connect, ahead, lasted, refused = [], [], 0, 0, 0
        for _ in range(tries):
            self.set_clock(0)
            del self.minter.got[:-1]        # of earlier tries
            began = time.monotonic()
            # IDs of before tell the time again
            wait_for(lambda: self.minter.got and self.minter.got[-1][0] > began and abs(self.minter.got[-1][2]) < 0.1,
                     4000, 'no ID')
            time.sleep(0.1)
            began = time.monotonic()
            self.connects.clear()
            log_size = os.path.getsize(self.server.log)
            took.append(fault())
            connect.append(max([seconds for at, seconds in self.connects if at > began], default=0))
            if took[-1] * 1000 > BOUND_MS:
                print(f'# {name}: {took[-1] * 1000:.0f} ms, meanwhile to connect took up to {connect[-1] * 1000:.0f} ms, '
                      f'load {os.getloadavg()[0]:.1f}', flush=True)
                self.show_log(log_size)
            self.first_since(time.monotonic())
            # until IDs are no longer ahead, or for so long
            wait_for(lambda: self.minter.got[-1][2] < 0.1 or time.monotonic() > began + self.options.watch_s, 60, '')
            # what a clock that is set while an ID is on its way makes of it is no lead
            since = [(got, lead) for asked, got, lead in self.minter.got if asked > began and lead < 2 * HOUR_S]
            behind = [got for got, lead in since if lead > 0.1]
            ahead = max([ahead] + [lead for _, lead in since])
            lasted = max(lasted, behind[-1] - began if behind else 0)
            refused += sum(when > began for when, _ in self.minter.errors)
        self.report(name, [second * 1000 for second in took], [second * 1000 for second in connect], refused, ahead, lasted)

    def show_log(self, offset):
        """What the server, and not its clients, wrote to the log from there on."""
        with open(self.server.log, encoding='utf-8', errors='replace') as file:
            file.seek(offset)
            for line in file:
                if ' client backend ' not in line and not line.startswith('\t'):
                    print(f'#   {line[:150].rstrip()}', flush=True)

    def report(self, name, took, connect, refused, ahead, lasted):
        """A row of the table, and the record so far."""
        ranked = sorted(took)
        p99 = ranked[max(-(-99 * len(ranked) // 100) - 1, 0)]
        print(f'| {name} | {len(took)} | {statistics.median(took):.0f} | {p99:.0f} | {ranked[-1]:.0f} | '
              f'{sum(ms > BOUND_MS for ms in took)} | {max(connect):.0f} | {refused} | {ahead:.1f} s | {lasted:.0f} s |',
              flush=True)
        self.measured.append({'fault': name, 'ms': [round(ms, 1) for ms in took],
                              'connect_ms': [round(ms, 1) for ms in connect], 'refused': refused,
                              'ahead_s': round(ahead, 2), 'ahead_for_s': round(lasted, 1)})
        if self.options.record:
            seconds = time.monotonic() - self.began
            began = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)
            with open(self.options.record, 'w', encoding='utf-8') as file:
                json.dump({'record': FORM, 'campaign': 'next', 'commit': self.options.commit, 'code': self.options.code,
                           'server': server_version(self.options.bindir), 'began': began.isoformat(timespec='seconds'),
                           'seconds': round(seconds, 1), 'load': [self.load, os.getloadavg()],
                           'processors': os.cpu_count(), 'faults': self.measured}, file)
                file.write('\n')

    def run(self):
        many, some, few = self.options.tries, 4, 2
        print(f'# PostgreSQL {server_version(self.options.bindir)}, {os.cpu_count()} processors, load {self.load[0]:.1f}')
        print('| fault | tries | ms, median | p99 | worst | above '
              f'{BOUND_MS} | to connect, worst | refused | ahead of the clock by at most | for at most |')
        print('| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |')
        for name, fault, tries in (
                ('SIGTERM to the keeper', self.terminate_keeper, many),
                ('SIGKILL of the keeper', self.kill_keeper, many),
                ('SIGTERM to a backend', self.terminate_backend, many),
                ('SIGKILL of a backend', self.kill_backend, many),
                ('kill -9 of all, and a start', lambda: self.restart('kill'), some),
                ('−9 s, a clean stop and a start', self.restart_after_step, few),
                ('−9 s, twice', self.step_twice, few),
                ('an hour back, accepted, and right again', self.right_again, few),
                ('boot in 2020, and set right', self.boot, few),
                ('keeper held for 1 s, an hour back: once it is let go', self.held, few)):
            if not self.options.only or self.options.only in name:
                self.measure(name, fault, tries)
        self.minter.over = True
        self.minter.join()
        print(f'# load {os.getloadavg()[0]:.1f}')
        for text in sorted({text for _, text in self.minter.errors})[:5]:
            print(f'# {text}')
        print('ok - measured\n1..1')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--work', required=True)
    parser.add_argument('--bindir', required=True)
    parser.add_argument('--tries', type=int, default=20, help='of each signal; of what lasts, a few')
    parser.add_argument('--watch-s', type=float, default=15, help='how long to watch IDs that are ahead')
    parser.add_argument('--only', help='faults that have this in their name')
    add_arguments(parser)
    bench = Bench(parser.parse_args())
    try:
        bench.run()
    finally:
        bench.site.stop_all()


if __name__ == '__main__':
    main()
