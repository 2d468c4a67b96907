"""The clients: mint through SQL and write down every ID that reaches them.

A client appends calls to its own file, in the order in which it received them.  A call is one statement that returned
IDs: a header (CALL) and the IDs as 64-bit numbers, in the order of the rows.  Times are CLOCK_MONOTONIC, which is one
clock for all processes of the machine and is not stepped; clients do not run under the clock shim.
"""

import array
import json
import math
import os
import random
import select
import signal
import struct
import time

import psycopg2
from psycopg2 import extensions

# session, IDs, start, end, kind of call, place: what the IDs come from
CALL = struct.Struct('<IIqqHH4x')
SESSIONS_PER_CLIENT = 1000000
DATABASES = ('one', 'two')
KINDS = ('insert', 'insert-many', 'rolled-back', 'committed', 'next', 'next-many')
HUNG_AFTER_S = 20


def read_calls(path):
    """Yield (session, start, end, kind, place, IDs) for each call of a file."""
    with open(path, 'rb', buffering=1 << 20) as file:
        while head := file.read(CALL.size):
            session, count, start, end, kind, place = CALL.unpack(head)
            ids = array.array('Q')
            ids.fromfile(file, count)
            yield session, start, end, kind, place, ids


class Shared:
    """What a campaign tells some clients, and they tell it; every element has one writer."""

    def __init__(self, context, clients):
        self.endpoint = context.RawValue('i', -1)           # number of the server to use, -1: none at present
        self.port = context.RawValue('i', 5432)
        self.stop = context.RawValue('b', 0)
        self.ids = context.RawArray('q', clients)
        self.newest = context.RawArray('Q', clients)
        self.last_start = context.RawArray('q', clients)    # start of the newest call that brought an ID
        self.connected = context.RawArray('b', clients)


class Hung(Exception):
    """The server has not answered for HUNG_AFTER_S."""


def wait_with_limit(conn):
    """psycopg2's wait, with a limit that no stepped clock can move."""
    end = time.monotonic() + HUNG_AFTER_S
    while (state := conn.poll()) != extensions.POLL_OK:
        fd = conn.fileno()
        left = max(0, end - time.monotonic())
        ready = select.select([fd], [], [], left) if state == extensions.POLL_READ else \
            select.select([], [fd], [], left)
        if not any(ready):
            raise Hung()


class Client:
    """One connection at a time.  "count": how many clients share the rate."""

    settings = ('SET synchronous_commit = on', 'SET synchronous_commit = local', 'SET synchronous_commit = off',
                'SET synchronous_commit = off')
    goes_on = True                      # after an error that leaves the connection

    def __init__(self, number, options, shared, count):
        self.number = number
        self.work = options.work
        self.shared = shared
        self.rng = random.Random(f'{options.seed}/{number}')
        self.seconds_per_id = count / options.rate
        # so that the number of statements a second hardly depends on the rate
        self.most_rows = int(max(options.rate / 8, 2000))
        self.sessions = 0
        self.due = time.monotonic()
        self.errors = {}
        self.samples = {}
        self.conn = None
        self.session = 0
        self.place = 0

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        extensions.set_wait_callback(wait_with_limit)
        # libpq prints what a dying server says while a connection is being made
        os.dup2(os.open(f'{self.work}/client{self.number}.err', os.O_WRONLY | os.O_CREAT, 0o644), 2)
        with open(f'{self.work}/client{self.number}.ids', 'wb', buffering=1 << 20) as self.file:
            while not self.shared.stop.value:
                endpoint = self.shared.endpoint.value
                if endpoint < 0:
                    time.sleep(0.01)
                    continue
                try:
                    self.one_session(endpoint)
                except (psycopg2.Error, Hung) as error:
                    self.count_error(error)
                    time.sleep(self.rng.uniform(0.02, 0.1))
                finally:
                    if self.conn is not None:
                        try:
                            self.conn.close()
                        except psycopg2.Error:
                            pass
                        self.conn = None
                    self.shared.connected[self.number] = 0
        with open(f'{self.work}/client{self.number}.json', 'w') as f:
            json.dump({'errors': self.errors, 'samples': self.samples, 'sessions': self.sessions}, f)

    def connect(self, endpoint):
        """Connect to the server of that number; self.place is what is noted down with each call."""
        self.place = self.rng.randrange(len(DATABASES))
        return psycopg2.connect(host=f'{self.work}/s{endpoint}', port=self.shared.port.value, user='postgres',
                                dbname=DATABASES[self.place])

    def new_session(self):
        self.session = self.number * SESSIONS_PER_CLIENT + self.sessions
        self.sessions += 1

    def one_session(self, endpoint):
        self.shared.connected[self.number] = 1
        self.conn = self.connect(endpoint)
        self.conn.autocommit = True
        self.new_session()
        with self.conn.cursor() as cur:
            if self.settings:
                cur.execute(self.rng.choice(self.settings))
            for _ in range(self.some(5, 2000)):
                if self.shared.stop.value or self.shared.endpoint.value not in (endpoint, -1):
                    return
                try:
                    self.one_call(cur)
                except psycopg2.Error as error:
                    if self.conn.closed or not self.goes_on:
                        raise
                    # The session goes on, so its IDs have to go on increasing.
                    self.count_error(error)
                    if self.conn.info.transaction_status != extensions.TRANSACTION_STATUS_IDLE:
                        cur.execute('ROLLBACK')
                    time.sleep(self.rng.uniform(0.02, 0.1))

    def some(self, low, high):
        return int(math.exp(self.rng.uniform(math.log(low), math.log(high))))

    def one_call(self, cur):
        kind = self.rng.choices(range(len(KINDS)), (40, 10, 8, 4, 40, 8))[0]
        name = KINDS[kind]
        if name == 'insert':
            self.mint(cur, kind, 'INSERT INTO minted DEFAULT VALUES RETURNING id')
        elif name == 'insert-many':
            rows = self.some(2, 300)
            if rows < 20:
                self.mint(cur, kind, 'INSERT INTO minted (note) VALUES ' + ', '.join(["('x')"] * rows) +
                          ' RETURNING id')
            else:
                self.mint(cur, kind, f"INSERT INTO minted (note) SELECT 'x' FROM generate_series(1, {rows})"
                          ' RETURNING id')
        elif name in ('rolled-back', 'committed'):
            cur.execute('BEGIN')
            for _ in range(self.rng.randrange(1, 6)):
                if self.rng.random() < 0.5:
                    self.mint(cur, kind, 'INSERT INTO minted DEFAULT VALUES RETURNING id')
                else:
                    self.mint(cur, kind, 'SELECT snowflake_next() FROM generate_series(1, 10)')
            cur.execute('ROLLBACK' if name == 'rolled-back' else 'COMMIT')
        elif name == 'next':
            self.mint(cur, kind, 'SELECT snowflake_next()')
        else:
            rows = self.some(2, self.most_rows)
            self.mint(cur, kind, f'SELECT snowflake_next() FROM generate_series(1, {rows})')

    def mint(self, cur, kind, sql):
        """Run one statement and record its IDs."""
        self.pace()
        start = time.monotonic_ns()
        cur.execute(sql)
        rows = cur.fetchall()
        end = time.monotonic_ns()
        ids = array.array('Q', [int(row[0]) for row in rows])
        self.file.write(CALL.pack(self.session, len(ids), start, end, kind, self.place))
        ids.tofile(self.file)
        newest = max(ids)
        if newest > self.shared.newest[self.number]:
            self.shared.newest[self.number] = newest
        self.shared.ids[self.number] += len(ids)
        self.shared.last_start[self.number] = start
        self.due += len(ids) * self.seconds_per_id

    def pace(self):
        """Hold the rate that was asked for, in a random rhythm; what a fault took is not made up for."""
        now = time.monotonic()
        if self.due > now:
            time.sleep(min(self.due - now, 0.25))
        elif self.due < now - 1:
            self.due = now - 1

    def count_error(self, error):
        text = str(error).strip().split('\n')[0]
        if isinstance(error, Hung):
            code, text = 'hung', f'no answer for {HUNG_AFTER_S} s'
        elif error.pgcode:
            code = 'lease ended' if text.endswith("lease of this server's node ID has ended") else error.pgcode
        elif any(s in text + str(error) for s in ('starting up', 'shutting down', 'recovery mode', 'not accepting',
                                                  'not yet accepting')):
            code = '57P03'      # psycopg2 has no SQLSTATE for what failed while connecting
        elif 'connection to server' in text:
            code, text = '08001', 'no connection'
        else:
            code, text = '08006', 'connection lost'
        self.errors[code] = self.errors.get(code, 0) + 1
        self.samples.setdefault(code, text)
