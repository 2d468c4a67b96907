"""How long it takes until the next ID after a fault, and how far IDs are ahead of the server's clock meanwhile.

    bash test/run.sh torture next              all faults, about five minutes
    bash test/run.sh torture next --tries 200  each fault so often, but those that last

It is no campaign: one server with its defaults, one session that mints without a pause, and no verdict.  The server's
clock is stepped by the shim.  What a server that starts takes for itself does not count: there the time begins when it
accepts a connection.
"""

import argparse
import os
import signal
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torture'))

import psycopg2     # noqa: E402

from servers import Server, Site, wait_for      # noqa: E402

HOUR_S = 3600
YEAR_S = 365 * 86400
EPOCH_MS, TIME_SHIFT = 1288834974657, 22        # of the default layout
GIVE_UP_S = 100


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


class Bench:
    def __init__(self, options):
        self.options = options
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

    # --- faults: each returns the seconds until an ID

    def terminate_keeper(self):
        """While connections come and go: how long there was no ID, until there is another keeper and one more ID."""
        over = threading.Event()

        def rush():
            while not over.is_set():
                try:
                    self.server.connect().close()
                except psycopg2.Error:
                    time.sleep(0.01)

        threads = [threading.Thread(target=rush) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_for(lambda: self.keeper() is not None, GIVE_UP_S, 'no keeper')
        pid = self.keeper()
        at = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: self.keeper() not in (None, pid), GIVE_UP_S, 'no keeper')
        end = self.first_since(time.monotonic())
        over.set()
        for thread in threads:
            thread.join()
        return self.gap(at, end)

    def crash(self, pid):
        os.kill(pid, signal.SIGKILL)
        at = time.monotonic()
        wait_for(lambda: self.minter.connected[-1] > at, GIVE_UP_S, 'no connection')
        at = next(when for when in self.minter.connected if when > at)
        end = self.first_since(at)
        return GIVE_UP_S if end is None else end - at

    def kill_keeper(self):
        wait_for(lambda: self.keeper() is not None, GIVE_UP_S, 'no keeper')
        return self.crash(self.keeper())

    def kill_backend(self):
        conn = self.server.connect()
        try:
            return self.crash(conn.info.backend_pid)
        finally:
            conn.close()

    def restart(self, how):
        at = time.monotonic()
        self.server.stop(how)
        self.server.bring_up()
        wait_for(lambda: self.minter.connected[-1] > at, GIVE_UP_S, 'no connection')
        at = next(when for when in self.minter.connected if when > at)
        end = self.first_since(at)
        return GIVE_UP_S if end is None else end - at

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
        took, ahead, lasted, refused = [], 0, 0, 0
        for _ in range(tries):
            self.set_clock(0)
            began = time.monotonic()
            # IDs of before tell the time again
            wait_for(lambda: self.minter.got and self.minter.got[-1][0] > began and abs(self.minter.got[-1][2]) < 0.1,
                     4000, 'no ID')
            time.sleep(0.1)
            began = time.monotonic()
            took.append(fault())
            self.first_since(time.monotonic())
            # until IDs are no longer ahead, or for so long
            wait_for(lambda: self.minter.got[-1][2] < 0.1 or time.monotonic() > began + self.options.watch_s, 60, '')
            # what a clock that is set while an ID is on its way makes of it is no lead
            since = [(got, lead) for asked, got, lead in self.minter.got if asked > began and lead < 2 * HOUR_S]
            behind = [got for got, lead in since if lead > 0.1]
            ahead = max([ahead] + [lead for _, lead in since])
            lasted = max(lasted, behind[-1] - began if behind else 0)
            refused += sum(when > began for when, _ in self.minter.errors)
        took.sort()
        print(f'| {name} | {tries} | {statistics.median(took) * 1000:.0f} | {took[-1] * 1000:.0f} | {refused} | '
              f'{ahead:.1f} s | {lasted:.0f} s |', flush=True)

    def run(self):
        many, some, few = self.options.tries, max(self.options.tries // 5, 3), 2
        print('| fault | tries | ms, median | ms, worst | refused | ahead of the clock by at most | for at most |')
        print('| --- | ---: | ---: | ---: | ---: | ---: | ---: |')
        for name, fault, tries in (
                ('SIGTERM to the keeper, while others connect', self.terminate_keeper, many),
                ('SIGKILL of the keeper', self.kill_keeper, some),
                ('SIGKILL of a backend', self.kill_backend, some),
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
        for text in sorted({text for _, text in self.minter.errors})[:5]:
            print(f'# {text}')
        print('ok - measured\n1..1')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--work', required=True)
    parser.add_argument('--bindir', required=True)
    parser.add_argument('--tries', type=int, default=20)
    parser.add_argument('--watch-s', type=float, default=15, help='how long to watch IDs that are ahead')
    parser.add_argument('--only')
    bench = Bench(parser.parse_args())
    try:
        bench.run()
    finally:
        bench.site.stop_all()


if __name__ == '__main__':
    main()
