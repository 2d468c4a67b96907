"""The campaign of the frontier.

Writers mint, dawdle, and commit, or not; backends and servers are killed, and the synchronous standby is cut off, so that
commits hang.  Meanwhile readers tail the table.  At the end each must have delivered every row once, in the order of the
IDs, and none that is not there.
"""

import os
import random
import signal
import sys
import threading
import time
import traceback

import psycopg2

import results
from campaign import Campaign, Parser
from servers import Backup, Down, Server, Site, busy, cursor, wait_for

WRITERS = 16
PAUSE_S = 0.05
STANDSTILL_S = 60
ARRIVAL_S = 600

SCHEMA = """
CREATE EXTENSION snowflake;
CREATE TABLE events (
    id snowflake PRIMARY KEY DEFAULT snowflake_next(),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    writer int
);
CREATE INDEX ON events (xid, id);
CREATE TABLE frontiers (node int PRIMARY KEY, up_to snowflake NOT NULL);
CREATE TABLE seeds AS SELECT n FROM generate_series(1, 200) n;
ALTER TABLE seeds SET (parallel_workers = 2);
CREATE VIEW settled AS SELECT id FROM events WHERE id <= snowflake_frontier();
CREATE FUNCTION in_sql(after bigint) RETURNS SETOF bigint STABLE LANGUAGE sql AS
    'SELECT id FROM events WHERE id > after AND id <= snowflake_frontier() ORDER BY id LIMIT 100';
CREATE FUNCTION in_plpgsql(after bigint) RETURNS SETOF bigint STABLE LANGUAGE plpgsql AS
    'BEGIN RETURN QUERY SELECT id::bigint FROM settled WHERE id > after ORDER BY id LIMIT 100; END';
"""

SETTLED = 'SELECT id FROM settled WHERE id > %s ORDER BY id LIMIT 100'
# One statement, in all forms: each reads by one snapshot, whose frontier it asks for; but for the last, on the standby
STATEMENTS = {
    'view': SETTLED,
    'statement': """WITH up_to AS MATERIALIZED (SELECT snowflake_frontier() AS id)
        SELECT e.id FROM events e, up_to WHERE e.id > %s AND e.id <= up_to.id ORDER BY e.id LIMIT 100""",
    'subquery': 'SELECT id FROM events WHERE id > %s AND id <= (SELECT snowflake_frontier()) ORDER BY id LIMIT 100',
    # it asks for each row: the condition is in no index
    'each_row': 'SELECT id FROM events WHERE id > %s AND id::text::bigint <= snowflake_frontier() ORDER BY id LIMIT 100',
    'generic_plan': 'EXECUTE settled(%s)',
    'sql_function': 'SELECT in_sql(%s)',
    'plpgsql': 'SELECT in_plpgsql(%s)',
    'stored_in_one': """SELECT id FROM events WHERE id > %s AND id <= (SELECT up_to FROM frontiers WHERE node = 1)
        ORDER BY id LIMIT 100"""}

PARALLEL = """
SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL parallel_leader_participation = off;
CREATE TEMP TABLE minted ON COMMIT DROP AS SELECT snowflake_next() AS id FROM seeds;
INSERT INTO events (id, writer) SELECT id, %(writer)s FROM minted;
"""

CAUGHT = """
DO $$
BEGIN
    INSERT INTO events (writer) VALUES (%(writer)s);
    PERFORM 1 / 0;
EXCEPTION WHEN division_by_zero THEN
    INSERT INTO events (writer) VALUES (%(writer)s);
END $$
"""


class TailedServer(Server):
    def extension_settings(self):
        return {**super().extension_settings(), 'max_prepared_transactions': '30', 'synchronous_commit': 'on',
                'max_connections': '60', 'max_worker_processes': '24', 'max_parallel_workers': '16',
                'hot_standby_feedback': 'on', 'deadlock_timeout': '10s', 'archive_mode': 'off'}

    def bring_up_standby(self):
        wait_for(lambda: self.start(must=False), 60, f'server {self.number} is not up, see {self.log}')


class Frontier(Campaign):
    name = 'frontier'
    least = 5, 0
    passing = (psycopg2.Error, ValueError, ProcessLookupError, IndexError)
    longest_pause_s = 3

    def __init__(self, options):
        super().__init__(options)
        self.site = Site(options)
        self.primary = None
        self.standby = None
        self.writing = True
        self.reading = True
        self.writers, self.readers, self.threads = [], [], []
        self.counts = {}
        self.errors = {}
        self.calls = []             # (asked, got) of statements that brought IDs, in nanoseconds
        self.lock = threading.Lock()
        self.there = set()          # the rows at the end

    def count(self, what, by=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + by

    def count_error(self, error):
        with self.lock:
            name = type(error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1

    def count_ids(self):
        return len(self.calls)

    def set_up(self):
        self.primary = TailedServer(self.site, 0)
        self.primary.initdb()
        self.primary.configure()
        self.primary.start()
        self.primary.query(SCHEMA)
        self.primary.query("SET snowflake.max_wait = '1min'; SELECT snowflake_next()")
        self.standby = TailedServer(self.site, 1)
        Backup(self.primary).copy_to(self.standby)
        self.standby.configure(follow=self.primary)
        self.standby.start()
        self.primary.configure(sync=True)
        self.primary.reload()
        names = [*STATEMENTS, 'frontier', 'repeatable_read', 'cursor', 'stored']
        self.readers = [Reader(self, name, 'standby' if 'stored' in name else 'primary') for name in names]
        self.threads = [self.persist(reader.read) for reader in self.readers]
        self.threads.append(self.persist(self.store))
        self.writers = [self.persist(Writer(self, n).write) for n in range(WRITERS)]

    def persist(self, target):
        """Run something that loses its server now and then, again and again."""
        def loop():
            while self.writing if target.__name__ == 'write' else self.reading:
                try:
                    target()
                except psycopg2.Error as error:
                    self.count_error(error)
                    time.sleep(0.05)
                except Exception:       # the verdict on the rest is still wanted
                    traceback.print_exc()
                    self.count('broken threads')
                    return
        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        return thread

    def store(self):
        """The frontier, for the standby, by ordinary transactions."""
        with cursor(**self.primary.where()) as cur:
            cur.execute('SET synchronous_commit = local')
            while self.reading:
                cur.execute("""INSERT INTO frontiers SELECT 1, f FROM snowflake_frontier() f WHERE f IS NOT NULL
                    ON CONFLICT (node) DO UPDATE SET up_to = excluded.up_to""")
                time.sleep(0.05)

    # --- faults

    def kinds(self):
        return [(name, getattr(self, name.replace(' ', '_'))) for name in ('terminate', 'kill backend', 'kill server', 'cut off')]

    def backends(self):
        return [row[0] for row in self.primary.query(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'writer' AND state <> 'idle'")]

    def terminate(self, _event):
        for pid in self.rng.sample(self.backends(), 2):
            self.primary.query('SELECT pg_terminate_backend(%s)', (pid,))

    def kill_backend(self, _event):
        os.kill(self.rng.choice(self.backends()), signal.SIGKILL)
        time.sleep(0.2)
        self.primary.bring_up()

    def kill_server(self, _event):
        self.primary.stop(self.rng.choice(('kill', 'immediate', 'fast')))
        self.primary.bring_up()

    def cut_off(self, _event):
        """Commits hang until the standby is back, some until they are told to go on without it."""
        self.standby.stop('immediate')
        time.sleep(self.rng.uniform(0.5, 2))
        for pid in self.rng.sample(self.backends(), 1):
            self.primary.query('SELECT pg_cancel_backend(%s)', (pid,))
        time.sleep(self.rng.uniform(0, 1))
        if self.rng.random() < 0.3:
            self.kill_server(None)
        self.standby.bring_up_standby()

    def finish_prepared(self):
        for (gid,) in self.primary.query(
                "SELECT gid FROM pg_prepared_xacts WHERE prepared < now() - interval '3 s'"):
            try:
                self.primary.query(self.rng.choice(('COMMIT', 'ROLLBACK')) + ' PREPARED %s', (gid,))
            except psycopg2.Error as error:
                self.count_error(error)

    def settle(self, event):
        self.primary.bring_up()
        if not self.standby.alive():
            self.standby.bring_up_standby()
        event.update(over=time.monotonic_ns(), busy=busy())
        self.finish_prepared()

    def inject(self):
        super().inject()
        # all end, then the readers have some time for the rest
        self.writing = False
        for thread in self.writers:
            thread.join(60)
        self.primary.bring_up()
        for (gid,) in self.primary.query('SELECT gid FROM pg_prepared_xacts'):
            self.primary.query('COMMIT PREPARED %s', (gid,))
        self.await_readers(self.primary.query('SELECT coalesce(max(id), 0) FROM events')[0][0])
        time.sleep(0.5)

    def await_readers(self, newest):
        """Wait until all have read up to an ID.  On a busy machine that may take long, and not all arrive; but each goes on."""
        behind = {reader: (None, 0) for reader in self.readers}
        began = time.monotonic()
        while behind and time.monotonic() - began < ARRIVAL_S:
            for reader, (before, since) in list(behind.items()):
                if reader.reached >= newest:
                    del behind[reader]
                elif reader.reached != before:
                    behind[reader] = reader.reached, time.monotonic()
                elif time.monotonic() - since > STANDSTILL_S:
                    raise Down(f'the reader {reader.name} on {reader.where} does not arrive')
            time.sleep(0.05)

    def end(self):
        self.writing = self.reading = False
        for thread in self.threads:
            thread.join(30)
        if self.primary and self.primary.alive():
            self.there = {int(row[0]) for row in self.primary.query('SELECT id FROM events')}
        return super().end()

    # --- the report

    def report(self, seconds):
        print('  ' + ', '.join(f'{what} {count}' for what, count in sorted(self.counts.items())))
        print('  errors: ' + ', '.join(f'{what} {count}' for what, count in sorted(self.errors.items())))
        print(f'rows: {len(self.there)}')
        wrong = sum(not self.judge(reader) for reader in self.readers)
        twice = self.errors.get('UniqueViolation', 0)
        self.check(f'{twice} unique violations', not twice)
        self.check(f'{self.counts.get("broken threads", 0)} broken threads', not self.counts.get('broken threads'))
        waits = self.waits(self.history())
        self.check(f'{len(waits)} faults, {len(self.there)} rows', len(self.there) > 0 and
                   len(waits) >= int(self.least[0] * self.options.minutes))
        results.write(self, seconds=seconds, ids=len(self.there), twice=twice, disorder=wrong,
                      waits=[wait for _, wait in waits if wait is not None], failed=self.failed)

    def history(self):
        history = super().history()
        history.calls = {('line0', i, *call): () for i, call in enumerate(self.calls)}
        return history

    def judge(self, reader):
        """Has it delivered each row once, in order, as far as it has come?"""
        delivered = set(reader.delivered)
        ascending = all(a < b for a, b in zip(reader.delivered, reader.delivered[1:]))
        missed = sum(1 for one in self.there - delivered if one <= reader.reached)
        phantoms = len(delivered - self.there)
        twice = len(reader.delivered) - len(delivered)
        good = ascending and not missed and not phantoms and not twice
        self.check(f'{reader.name} on {reader.where}: {len(reader.delivered)} delivered, {missed} missed, {phantoms} that are not'
                   f' there, {twice} twice{"" if ascending else ", out of order"}', good)
        return good


class Writer:
    """Transactions of all kinds.  Some are left to whoever cleans up."""

    def __init__(self, campaign, number):
        self.campaign = campaign
        self.number = number
        self.rng = random.Random(f'{campaign.options.seed} {number}')
        self.gids = 0

    def write(self):
        with cursor(**self.campaign.primary.where()) as cur:
            cur.execute('SET application_name = writer')
            for _ in range(self.rng.randrange(1, 200)):
                if not self.campaign.writing:
                    return
                self.transaction(cur)

    def pause(self):
        time.sleep(self.rng.expovariate(1 / PAUSE_S) if self.rng.random() < 0.7 else 0)

    def insert(self, cur, rows=1):
        asked = time.monotonic_ns()
        cur.execute('INSERT INTO events (writer) SELECT %s FROM generate_series(1, %s) RETURNING id',
                    (self.number, rows))
        if cur.fetchall():
            self.campaign.calls.append((asked, time.monotonic_ns()))

    def transaction(self, cur):
        kind = self.rng.choice(('plain', 'plain', 'several', 'savepoint', 'roll back', 'caught', 'batch', 'mint only',
                                'mint first', 'prepare', 'parallel', 'leave'))
        cur.execute('BEGIN')
        if kind in ('plain', 'roll back'):
            self.insert(cur)
        elif kind == 'several':
            for _ in range(self.rng.randrange(2, 6)):
                self.insert(cur, self.rng.randrange(1, 4))
                self.pause()
        elif kind == 'savepoint':
            self.insert(cur, self.rng.randrange(0, 2))
            cur.execute('SAVEPOINT a')
            self.insert(cur)
            self.pause()
            cur.execute(self.rng.choice(('ROLLBACK TO a', 'RELEASE a')))
            self.insert(cur, self.rng.randrange(0, 2))
        elif kind == 'caught':
            cur.execute(CAUGHT, {'writer': self.number})
        elif kind == 'batch':
            cur.execute('INSERT INTO events (id, writer) SELECT id, %s FROM snowflake_next_batch(20) id', (self.number,))
        elif kind == 'mint only':
            cur.execute('SELECT snowflake_next()')
        elif kind == 'mint first':
            # and has no xid until it writes
            cur.execute('SELECT snowflake_next()::bigint')
            minted = cur.fetchone()[0]
            time.sleep(self.rng.uniform(0, 0.5))    # longer than most hold the frontier back
            cur.execute('INSERT INTO events (id, writer) VALUES (%s, %s)', (minted, self.number))
        elif kind == 'parallel':
            cur.execute(PARALLEL, {'writer': self.number})
        elif kind in ('prepare', 'leave'):
            self.insert(cur, 2)
        self.pause()
        if kind == 'prepare':
            self.prepare(cur)
        elif kind == 'leave':
            # half of them by closing the session, half by an error
            if self.rng.random() < 0.1:
                raise psycopg2.OperationalError('left')
            cur.execute('ROLLBACK')
        else:
            cur.execute('ROLLBACK' if kind == 'roll back' else 'COMMIT')
        self.campaign.count(kind)
        self.pause()

    def prepare(self, cur):
        self.gids += 1
        gid = f'{self.number} {self.gids} {self.rng.random()}'
        cur.execute('PREPARE TRANSACTION %s', (gid,))
        if self.rng.random() < 0.1:
            return      # somebody else will finish it
        self.pause()
        cur.execute(self.rng.choice(('COMMIT', 'COMMIT', 'ROLLBACK')) + ' PREPARED %s', (gid,))


class Reader:
    """Delivers rows in the order of their IDs, from where it has been."""

    def __init__(self, campaign, name, where):
        self.campaign = campaign
        self.name = name
        self.where = where          # 'primary' or 'standby'
        self.delivered = []
        self.reached = 0            # all up to it is delivered

    def read(self):
        with cursor(**getattr(self.campaign, self.where).where()) as cur:
            if self.name == 'generic_plan':
                cur.execute('SET plan_cache_mode = force_generic_plan')
                cur.execute('PREPARE settled(bigint) AS ' + SETTLED.replace('%s', '$1'))
            while self.campaign.reading:
                rows = self.rows(cur, STATEMENTS[self.name], self.reached) if self.name in STATEMENTS else \
                    getattr(self, 'by_' + self.name)(cur)
                self.delivered += rows
                self.reached = max(rows[-1:] + [self.reached])
                if len(rows) < 100:
                    time.sleep(0.01)

    def rows(self, cur, sql, *args):
        cur.execute(sql, args)
        return [int(row[0]) for row in cur.fetchall()]

    def rows_up_to(self, cur, up_to):
        """Goes on from the frontier and not only from the last row, which is as good."""
        rows = self.rows(cur, 'SELECT id FROM events WHERE id > %s AND id <= %s ORDER BY id LIMIT 100',
                         self.reached, up_to)
        if len(rows) < 100:
            self.reached = max(self.reached, up_to)
        return rows

    def by_frontier(self, cur):
        """In two statements."""
        cur.execute('SELECT snowflake_frontier()::bigint')
        up_to = cur.fetchone()[0]
        return [] if up_to is None else self.rows_up_to(cur, up_to)

    def by_repeatable_read(self, cur):
        """The snapshot is older than the question."""
        cur.execute('BEGIN ISOLATION LEVEL REPEATABLE READ')
        try:
            cur.execute('SELECT 1 FROM events LIMIT 1')
            time.sleep(random.choice((0, 0.005, 0.05)))
            return self.rows(cur, SETTLED, self.reached)
        finally:
            cur.execute('ROLLBACK')

    def by_cursor(self, cur):
        """Two cursors by turns, the older of which counts."""
        cur.execute('BEGIN')
        try:
            # it sorts, but for one that is far behind not all that is left
            cur.execute("""DECLARE a CURSOR FOR SELECT id FROM (SELECT id FROM settled WHERE id > %s ORDER BY id LIMIT 1000) next
                ORDER BY id::text::bigint LIMIT 100""", (self.reached,))
            time.sleep(random.choice((0, 0.005)))
            cur.execute('DECLARE b CURSOR FOR SELECT id FROM settled WHERE id > %s ORDER BY id', (self.reached,))
            rows = []
            for _ in range(4):
                rows += self.rows(cur, 'FETCH 25 FROM a')
                self.rows(cur, 'FETCH 5 FROM b')
                self.rows(cur, 'SELECT snowflake_frontier()::bigint WHERE snowflake_frontier() IS NOT NULL')
            return rows
        finally:
            cur.execute('ROLLBACK')

    def by_stored(self, cur):
        cur.execute('SELECT up_to::bigint FROM frontiers WHERE node = 1')
        row = cur.fetchone()
        return self.rows_up_to(cur, row[0]) if row else []


def main():
    parser = Parser(minutes=1, rate=0)
    sys.stdout.flush()
    status = Frontier(parser.parse_args()).main()
    sys.stdout.flush()
    os._exit(status)            # a thread may still wait for its server


if __name__ == '__main__':
    main()
