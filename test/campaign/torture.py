"""The campaign of one server and its standby: it is killed, restored, promoted, filled up, and its clock lies.

The clock.  base_ns is how far the primary's clock is ahead of the machine's when no fault is on.  It only grows.

The standby is synchronous while it exists.  A promotion is only begun when it is known to be: a commit made before is
on it.
"""

import contextlib
import os
import re
import shutil
import signal
import sys
import threading
import time

import psycopg2

import clients
from campaign import Campaign, Parser, span
from servers import Backup, Down, Server, Site, busy, children, cursor, send, wait_for

NODES = (1, 2, 3, 700)
CLIENTS = 6
STOPS = ('kill', 'immediate', 'fast')
KEEPER = "backend_type = 'snowflake keeper'"
REPEATED_NS = 8 * 10**9
MAX_JUMP_NS = 10 * 10**9                # snowflake.max_jump
PATIENT_NS = 8 * 3600 * 10**9           # ahead by more than this has to last for half a minute
EPOCH_MS, TIME_SHIFT = 1288834974657, 22    # of the default layout
# Up to when is stored, and shows to others, by the servers' clock: wall clock, in nanoseconds
STORED = 'SELECT (extract(epoch FROM max(reserved_until)) * 1000000)::bigint * 1000 FROM snowflake_keeper.reservation'


class Torture(Campaign):
    name = 'torture'
    least = 200 / 60, 10_000_000 / 60
    passing = (psycopg2.Error, )
    # a disk that was full is tried again once a second
    boundless = ('full disk of reservation', 'keeper held by a full disk')
    place = 'database {}'.format

    def __init__(self, options):
        super().__init__(options)
        self.site = Site(options, options.small_disks)
        self.shared = [clients.Shared(self.context, CLIENTS)]
        self.clients = self.shared[0]
        self.node = NODES[0]
        self.primary = None
        self.standby = None
        self.backup = None

    def kinds(self):
        # Several of a kind stand for a heavier weight: cheap faults come twice a round.
        kinds = [
            *[('kill postmaster', lambda e: self.restart(e, 'kill'))] * 2, ('kill postmaster while it opens', self.kill_at_opening),
            ('kill backend', self.kill_backend),
            ('stop immediate', lambda e: self.restart(e, 'immediate')), ('stop fast', lambda e: self.restart(e, 'fast')),
            *[('clock forward', self.clock_forward)] * 2, *[('clock back', self.clock_back)] * 2,
            ('clock jitter', self.clock_jitter), *[('clock lies', self.clock_lies)] * 2,
            ('clock back while down', lambda e: self.back_while_down(e, None)),
            ('promotion with clock behind', self.promotion), ('promotion of cut-off standby', self.promotion_after_cut),
            ('clock jumps by about max_jump', self.clock_about_max_jump),
            ('restart while the clock lies', self.restart_in_lie),
            ('restore to the end of WAL', self.restore_to_end), ('restore to an earlier point', self.restore_to_point),
            ('kill keeper', self.kill_keeper), ('terminate keeper', self.terminate_keeper),
            ('keeper ends while clients connect', self.end_keeper_in_rush),
            ('keeper stands still while the clock jumps', self.still_keeper_and_jump),
            *[('node change', self.node_change)] * 2, ('node change while down', self.node_change_while_down),
            ('keeper held by a lock', self.held_by_lock), ('keeper held by its standby', self.held_by_standby),
            ('keeper held by SIGSTOP', self.held_by_stop)]
        if self.options.small_disks:
            kinds += [('full disk of WAL', self.full_wal), ('full disk of reservation', self.full_reservation),
                      ('keeper held by a full disk', self.held_by_disk)]
        return kinds

    def first_round(self, kinds):
        """It begins with what is aimed, so that the shortest campaign has it."""
        return sorted(kinds, key=lambda kind: kind[0].startswith('keeper held'))

    @property
    def base_ns(self):
        return self.primary.base_ns

    def any_server(self, _event):
        return self.primary

    # --- set-up

    def set_up(self):
        self.primary = Server(self.site, 0)
        self.primary.initdb()
        self.primary.configure()
        self.primary.start()
        p = self.primary
        p.query('CREATE TABLE torture_pulse (n int)')
        p.query('INSERT INTO torture_pulse VALUES (0)')
        for i, db in enumerate(clients.DATABASES):
            p.query(f'CREATE DATABASE {db}')
            p.query('CREATE EXTENSION snowflake', dbname=db)
            column = ('snowflake', 'bigint')[i]
            p.query(f'CREATE TABLE minted (id {column} PRIMARY KEY DEFAULT snowflake_next(), note text)', dbname=db)
        p.query('SELECT snowflake_next()', dbname=clients.DATABASES[0])
        if self.options.small_disks:
            os.mkdir(p.tablespace)
            p.query(f"CREATE TABLESPACE small LOCATION '{p.tablespace}'")
            p.query('ALTER TABLE snowflake_keeper.reservation SET TABLESPACE small')
        self.open_to_clients()
        self.build_standby()
        self.start_clients(clients.Client(i, self.options, self.clients, CLIENTS) for i in range(CLIENTS))

    def build_standby(self):
        """Take a base backup of the primary and start a synchronous standby from it."""
        self.drop_standby()
        self.backup = Backup(self.primary)
        self.standby = Server(self.site, 1 - self.primary.slot)
        self.backup.copy_to(self.standby)
        self.standby.step_clock(self.base_ns)
        self.standby.configure(follow=self.primary)
        self.standby.start()
        wait_for(lambda: self.standby_state() is not None, 60, 'the standby does not stream')
        self.primary.configure(sync=True)
        self.primary.reload()
        wait_for(lambda: self.standby_state() == 'sync', 60, 'the standby is not synchronous')
        # That view shows the WAL sender's opinion; backends wait once the checkpointer has read the setting, too.
        self.primary.query('CHECKPOINT')
        if not self.pulse():
            raise Down('a commit does not reach the standby')

    def drop_standby(self):
        if self.standby is None:
            return
        if self.primary.alive():
            self.primary.configure(sync=False)
            self.primary.reload()
        self.standby.remove()
        self.standby = None

    def standby_state(self):
        try:
            rows = self.primary.query("SELECT sync_state FROM pg_stat_replication"
                                      " WHERE application_name = 'standby' AND state = 'streaming'")
        except psycopg2.Error:
            return None
        return rows[0][0] if rows else None

    def pulse(self):
        """Commit something that has to be on the standby when this returns."""
        try:
            with cursor(**self.primary.where()) as cur:
                cur.execute('SET synchronous_commit = on')
                cur.execute('UPDATE torture_pulse SET n = n + 1')
            return True
        except psycopg2.Error:
            return False

    def settle(self, event):
        """Come back to a primary that mints and a standby that follows it."""
        self.primary.bring_up()
        event.update(over=time.monotonic_ns(), busy=busy())
        self.open_to_clients()
        if self.standby and not self.standby.alive():
            self.standby.start(must=False)
        self.wait_for_ids(event, self.clients, lambda: self.primary, lambda: filter(None, (self.primary, self.standby)))
        if self.standby:
            try:
                wait_for(lambda: self.standby_state() == 'sync', 20, '')
            except Down:
                event['detail'].append('standby rebuilt')
                self.build_standby()
        else:
            self.build_standby()
        for dbname in clients.DATABASES:
            self.truncate(self.primary, dbname)

    def follows(self):
        """Is there a standby that has all that was committed?"""
        return self.standby is not None and self.pulse()

    def open_to_clients(self):
        self.clients.endpoint.value = self.primary.number

    def close_to_clients(self):
        self.clients.endpoint.value = -1

    def stop_primary(self, event, how=None):
        how = how or self.rng.choice(STOPS)
        event['detail'].append(how)
        event['at'] = time.monotonic_ns()
        self.primary.stop(how)

    def undo_clock(self, pause=(0, 0)):
        self.hold(*pause)
        self.primary.step_clock(self.base_ns)

    def catch_up(self):
        """The clock was behind when a server began to serve."""
        self.undo_clock((0.3, 2.5))

    # --- kinds of fault: processes

    def restart(self, event, how):
        self.stop_primary(event, how)
        if self.rng.random() < 0.3:
            self.hold(0.5, 3)
        self.primary.start(must=False)

    def kill_at_opening(self, event):
        """Kill it again, and perhaps once more, just after it has begun to serve."""
        self.restart(event, 'kill')
        for _ in range(self.rng.randrange(1, 3)):
            self.hold(0, 0.3)
            self.restart(event, self.rng.choice(('kill', 'kill', 'immediate')))

    def victims(self, where):
        try:
            return [row[0] for row in self.primary.query(f'SELECT pid FROM pg_stat_activity WHERE {where} ORDER BY pid')]
        except psycopg2.Error:
            return []

    def kill_backend(self, event):
        pids = self.victims("backend_type = 'client backend' AND pid <> pg_backend_pid()")
        return self.kill_one(event, pids)

    def keepers(self):
        for _ in range(100):
            if pids := self.victims(KEEPER):
                return pids
            time.sleep(0.05)
        return []

    def kill_keeper(self, event):
        return self.kill_one(event, self.keepers())

    def kill_one(self, event, pids):
        if not pids:
            return False
        event['at'] = time.monotonic_ns()
        send(signal.SIGKILL, [self.rng.choice(pids)])
        # until the postmaster notices, the server still answers
        time.sleep(0.05)
        return True

    def end_keeper(self, event, number, times, low, high):
        """Send the keeper a signal, again and again, with so many seconds in between."""
        event['detail'].append(f'{number.name} {times} times')
        for i in range(times):
            self.hold(low, high)
            pids = self.keepers()
            if not pids:
                return i > 0
            if i == 0:
                event['at'] = time.monotonic_ns()
            send(number, pids[:1])
        time.sleep(0.05)
        return True

    def terminate_keeper(self, event):
        return self.end_keeper(event, signal.SIGTERM, self.rng.choice((1, 1, 2, 4)), 0, 0.5)

    def end_keeper_in_rush(self, event):
        """Terminate or kill the keeper while connections come and go as fast as they can.

        A postmaster may sleep on though a worker has ended, if it hears of that and of a connection at once.
        """
        number = self.rng.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGKILL))
        over = threading.Event()

        def rush(server):
            while not over.is_set():
                try:
                    server.query('SELECT 1')
                except psycopg2.Error:
                    time.sleep(0.01)

        threads = [threading.Thread(target=rush, args=(self.primary,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            return self.end_keeper(event, number, 1 if number == signal.SIGKILL else self.rng.randrange(2, 6), 0.05, 0.3)
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def still_keeper_and_jump(self, event):
        """The keeper stands still, as if its disk were slow, and the clock jumps meanwhile: nobody judges it."""
        pids = self.keepers()
        if not pids:
            return False
        step = self.some_step(5e8) * self.rng.choice((-1, -1, 1))
        event['detail'].append(span(step))
        event['at'] = time.monotonic_ns()
        with Server.stopped(pids[:1]):
            self.hold(0, 0.5)
            if step > 0:
                self.keep_step(self.primary, step)
            else:
                self.primary.step_clock(self.base_ns + step)
            self.hold(0.06, 1.5)
        self.undo_clock((0.1, 1))
        return True

    # --- kinds of fault: the clock

    def clock_lies(self, event):
        """Seconds to years, either way, for less than it takes to be believed.

        Sometimes the server is started by that clock, and stopped again before anybody mints.
        """
        step = self.some_step(1e9, 3e17) * self.rng.choice((-1, 1))
        event['detail'].append(span(step))
        if self.rng.random() < 0.3:
            event['detail'].append('nobody mints')
            self.close_to_clients()
            self.stop_primary(event)
            self.primary.step_clock(self.base_ns + step)
            self.primary.bring_up()
            self.hold(0.1, 3)
            if self.rng.random() < 0.7:
                self.stop_primary(event)
        else:
            self.primary.step_clock(self.base_ns + step)
            # a jump ahead has to last for a thousandth of it, or for snowflake.jump_patience
            self.hold(0.1, 6 if step > PATIENT_NS else 1.2)
        self.undo_clock()

    def clock_about_max_jump(self, event):
        """Twice or more in a row, either way, a little less than what is believed at once, or a little more."""
        at_ns = highest_ns = 0
        for _ in range(self.rng.randrange(2, 5)):
            step = (MAX_JUMP_NS + self.some_step(1e3, 1e9) * self.rng.choice((-1, 1))) * self.rng.choice((-1, 1))
            event['detail'].append(span(step))
            at_ns += step
            highest_ns = max(highest_ns, at_ns)
            self.primary.step_clock(self.base_ns + at_ns)
            # for less than snowflake.jump_patience, or longer
            self.hold(0, self.rng.choice((0.3, 3)))
        # IDs were perhaps where the clock was
        self.keep_step(self.primary, highest_ns)

    def restart_in_lie(self, event):
        """The clock lies, the server crashes or stops meanwhile, and the clock is set right before or after its start.

        What was believed has to keep IDs neither out of order nor away once the clock is right.  In the end the clock is
        set to where the lie has led IDs, so that later faults do not find them ahead of it.
        """
        step = self.some_step(1e9) * self.rng.choice((-1, 1))
        event['detail'].append(span(step))
        self.primary.step_clock(self.base_ns + step)
        self.hold(0, self.rng.choice((0.5, 4)))
        how = self.rng.choice(('backend', 'keeper', *STOPS))
        event['at'] = time.monotonic_ns()
        if how in STOPS:
            self.stop_primary(event, how)
            if self.rng.random() < 0.3:
                event['detail'].append('right at the start')
                self.undo_clock()
        else:
            event['detail'].append(f'{how} killed')
            (self.kill_backend if how == 'backend' else self.kill_keeper)(event)
        self.primary.bring_up()
        self.undo_clock((0, self.rng.choice((0.5, 4))))
        self.hold(0.2, 3)
        self.keep_step(self.primary, max(step, 0))

    def node_change_while_down(self, event):
        """The same with another node ID in the settings: its IDs still have to sort after those of the one before."""
        self.back_while_down(event, self.rng.choice([n for n in NODES if n != self.node]))

    def back_while_down(self, event, node):
        step = self.some_step()
        self.stop_primary(event)
        event['detail'].append(span(step))
        if node is not None:
            event['detail'].append(f'{self.node} to {node}')
            with open(os.path.join(self.primary.data, 'postgresql.auto.conf'), 'w') as f:
                f.write(f"snowflake.node_id = '{node}'\n")
            self.node = node
        self.primary.step_clock(self.base_ns - step)
        self.primary.bring_up()
        if node is not None:
            self.set_node(node)
        self.undo_clock((0.3, 3))

    # --- kinds of fault: another server takes over

    def promotion(self, event):
        if not self.follows():
            return False
        old, new = self.primary, self.standby
        step = self.some_step()
        self.stop_primary(event)
        self.close_to_clients()
        event['detail'].append(f'{span(step)} behind')
        new.step_clock(self.base_ns - step)
        new.configure()
        new.reload()
        new.promote()
        self.take_over(old, new)
        self.catch_up()

    def promotion_after_cut(self, event):
        """The standby is cut off for a while before the primary dies: no commit of that time may count as durable.

        Not even that of a keeper which is told to end while it waits for the standby.  The standby must not read the
        primary's archive then, since that would give it what it missed.
        """
        if not self.follows():
            return False
        old, new = self.primary, self.standby
        step = self.some_step()
        event['at'] = time.monotonic_ns()
        new.stop('immediate')
        terminated = 0
        for _ in range(self.rng.randrange(1, 5)):
            self.hold(0.3, 1.5)
            for pid in self.victims(KEEPER):
                old.query('SELECT pg_terminate_backend(%s)', (pid,))
                terminated += 1
        self.close_to_clients()
        how = self.rng.choice(STOPS[:2])
        old.stop(how)
        event['detail'] += [how, f'{span(step)} behind', f'keeper terminated {terminated} times']
        new.step_clock(self.base_ns - step)
        new.configure()
        new.start()
        new.promote()
        self.take_over(old, new)
        self.catch_up()

    def take_over(self, old, new):
        new.base_ns = old.base_ns
        self.primary, self.standby = new, None
        self.open_to_clients()
        old.remove()

    def restore(self, target, clock_ns):
        """Restore the stopped primary from its base backup, its archive and what is left of its WAL."""
        old = self.primary
        self.drop_standby()
        new = Server(self.site, 1 - old.slot)
        self.backup.copy_to(new)
        for name in os.listdir(old.wal):
            if re.fullmatch(r'[0-9A-F]{24}|[0-9A-F]{8}\.history', name):
                shutil.copy2(os.path.join(old.wal, name), new.wal)
        new.configure(restore_from=[old], target=target)
        # settings are not in the WAL: the operator sets the node ID the server had
        shutil.copy2(os.path.join(old.data, 'postgresql.auto.conf'), new.data)
        open(os.path.join(new.data, 'recovery.signal'), 'w').close()
        new.step_clock(clock_ns)
        new.start()
        wait_for(new.answers, 60, f'server {new.number} does not end its recovery, see {new.log}', 0.01)
        new.configure()
        new.reload()
        return old, new

    def restore_to_end(self, event):
        if self.backup.of is not self.primary:
            return False
        self.stop_primary(event)
        self.close_to_clients()
        step = self.rng.choice((0, self.some_step()))
        if step:
            event['detail'].append(f'{span(step)} behind')
        self.take_over(*self.restore(None, self.base_ns - step))
        if step:
            self.catch_up()

    def restore_to_point(self, event):
        """What was minted after the target is unknown to the restored database.

        Two things keep such IDs from being issued again: a clock that is past the newest of them, or an operator who
        names the newest ID known outside to snowflake_advance() before anybody mints.
        """
        if self.backup.of is not self.primary:
            return False
        target = f'torture{len(self.events)}'
        self.primary.query('SELECT pg_create_restore_point(%s)', (target,))
        if not self.pulse():
            return False
        self.hold(0.5, 2)
        step = 0
        if self.rng.random() < 0.6:
            step = self.some_step()
            event['detail'].append(f'advance, {span(step)} behind')
        self.stop_primary(event)
        self.close_to_clients()
        wait_for(lambda: not any(self.clients.connected), 30, 'clients do not notice that the server has gone')
        old, new = self.restore(target, self.base_ns - step)
        newest = max(self.clients.newest)
        if not step and ((newest >> TIME_SHIFT) + EPOCH_MS) * 10**6 >= self.base_ns + time.time_ns():
            event['detail'].append('advance, IDs stood ahead')
            self.advance(new, newest)
        elif step:
            self.advance(new, newest)
        self.take_over(old, new)
        if step:
            self.catch_up()

    def advance(self, server, newest):
        end = time.monotonic() + 20
        while True:
            try:
                server.query(f"SELECT snowflake_advance('{newest}', force => true)", dbname=clients.DATABASES[0])
                return
            except psycopg2.Error as error:
                if time.monotonic() > end:
                    raise Down(f'snowflake_advance({newest}) is refused: {error}') from error
                time.sleep(0.1)

    # --- kinds of fault: settings and disks

    def set_node(self, node):
        """Set the node ID of the primary and of its standby."""
        try:
            for server in filter(None, (self.primary, self.standby)):
                server.query(f'ALTER SYSTEM SET snowflake.node_id = {node}')
                server.query('SELECT pg_reload_conf()')
        except psycopg2.Error:
            return False
        self.node = node
        return True

    def node_change(self, event):
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            before = self.node
            if self.rng.random() < 0.2:
                event['detail'].append('unset')
                self.set_node(-1)
                self.hold(0.1, 1.5)
            node = self.rng.choice([n for n in NODES if n != before])
            event['detail'].append(f'{before} to {node}')
            if not self.set_node(node):
                return False
            self.hold(0, 1)
        return True

    def fill(self, directory):
        """Leave no free block on the file system of a directory."""
        with open(os.path.join(directory, '..', 'ballast'), 'ab', buffering=0) as f:
            for chunk in (1 << 20, 4096):
                try:
                    while True:
                        f.write(bytes(chunk))
                except OSError:
                    pass

    def unfill(self, directory):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(directory, '..', 'ballast'))

    def full_wal(self, event):
        """The server panics when it needs a segment more, and cannot recover before there is room."""
        server = self.primary
        self.fill(server.wal)
        try:
            end = time.monotonic() + 6
            while time.monotonic() < end and server.answers():
                try:
                    server.query('INSERT INTO torture_pulse VALUES (0)')
                    server.query('SELECT pg_switch_wal()')
                except psycopg2.Error:
                    pass
                time.sleep(0.05)
                self.fill(server.wal)
            event['detail'].append('went on' if server.answers() else 'went down')
            self.hold(0.2, 1.5)
        finally:
            self.unfill(server.wal)

    def full_reservation(self, event, meanwhile=None):
        """The reservation's table is full, and its disk has no block for one more row version."""
        server = self.primary
        try:
            with cursor(**server.where()) as cur:
                # with a transaction ID from before, nothing that dies from now on can be pruned away
                cur.execute('BEGIN; SELECT pg_current_xact_id()')
                server.query('VACUUM snowflake_keeper.reservation')
                self.fill(server.tablespace)
                rows = 0
                for node in set(range(1, 1024)).difference(NODES):
                    cur.execute('SAVEPOINT row')
                    try:
                        cur.execute('INSERT INTO snowflake_keeper.reservation (node, layout, reserved_until)'
                                    ' SELECT %s, layout, reserved_until FROM snowflake_keeper.reservation LIMIT 1', (node,))
                    except psycopg2.errors.DiskFull:
                        cur.execute('ROLLBACK TO SAVEPOINT row')
                        break
                    rows += cur.rowcount
                event['detail'].append(f'{rows} rows fill it')
                event['at'] = time.monotonic_ns()
                (meanwhile or (lambda: self.hold(3.5, 6)))()
        finally:
            self.unfill(server.tablespace)

    # --- kinds of fault: the keeper is held inside its commit while the server dies

    # Clients mint on to the end of what is stored, and past it if the keeper published what it could not commit.  Then
    # the server is killed, and the next one's clock is set to just before that end: it goes through the time of those
    # IDs again, and they come twice unless what is stored keeps them apart.

    def stored_ns(self):
        return self.primary.query(STORED)[0][0]

    def mint_past(self, stored, how_far_s):
        """Wait until the primary's clock is past what is stored, whether anything is minted then or not."""
        left_ns = stored - self.base_ns - time.time_ns()
        time.sleep(min(max(left_ns, 0), REPEATED_NS) / 1e9 + how_far_s)

    def repeat(self, event, server, stored, ahead_s, start):
        """Start a server whose clock is so far before the end of what was stored, until it has caught up.

        What was stored may be of a time before a step of the clock; then nobody has minted for long past it.
        """
        died = time.monotonic()
        behind = min(max(self.base_ns + time.time_ns() - stored + int(ahead_s * 1e9), 0), REPEATED_NS)
        event['detail'].append(f'clock {span(behind)} behind')
        server.step_clock(self.base_ns - behind)
        start()
        self.open_to_clients()
        time.sleep(max(behind / 1e9 + 0.5 - (time.monotonic() - died), 0))
        self.undo_clock()

    def die_held(self, event, stored, hows=STOPS[:2], let_go=lambda: None):
        """Kill the primary while its keeper is held, and start it in the past."""
        self.mint_past(stored, self.rng.uniform(0.7, 1.5))
        how = self.rng.choice(hows)
        event['detail'].append(how)
        self.primary.stop(how)
        let_go()
        self.repeat(event, self.primary, stored, self.rng.uniform(1.5, 3), self.primary.bring_up)

    def held_by_lock(self, event):
        """By the table, in a mode that stands in its way, or by the row."""
        mode = self.rng.choice(('ACCESS EXCLUSIVE', 'EXCLUSIVE', 'SHARE', 'row'))
        event['detail'].append(mode)
        with cursor(**self.primary.where()) as cur:
            cur.execute('BEGIN; ' + ('SELECT * FROM snowflake_keeper.reservation FOR UPDATE' if mode == 'row' else
                                     f'LOCK TABLE snowflake_keeper.reservation IN {mode} MODE'))
            cur.execute(STORED)
            self.die_held(event, cur.fetchone()[0])

    def held_by_disk(self, event):
        """No block is free for one more version of the row."""
        self.full_reservation(event, lambda: self.die_held(event, self.stored_ns(),
                                                           let_go=lambda: self.unfill(self.primary.tablespace)))

    def held_by_stop(self, event):
        """By SIGSTOP, at any moment of its round, or with a commit that only it does not know of yet."""
        pids = self.keepers()
        if not pids:
            return False
        event['at'] = time.monotonic_ns()
        if self.standby and self.rng.random() < 0.5:
            event['detail'].append('after its commit')
            with Server.stopped(children(self.standby.postmaster())):
                if not self.wait_for_sync_rep():
                    return False
                send(signal.SIGSTOP, pids[:1])
        else:
            self.hold(0, 3)
        with Server.stopped(pids[:1]):
            # pg_ctl would wait for it
            self.die_held(event, self.stored_ns(), hows=('kill',))

    def wait_for_sync_rep(self):
        """Wait until the keeper's commit waits for the standby."""
        try:
            wait_for(lambda: self.victims(f"{KEEPER} AND wait_event = 'SyncRep'"), 6, '')
        except Down:
            return False
        return True

    def held_by_standby(self, event):
        """The keeper waits for a standby that is cut off; its wait may be canceled.  Then that standby is promoted."""
        if not self.follows():
            return False
        old, new = self.primary, self.standby
        new.stop('immediate')
        event['at'] = time.monotonic_ns()
        if not self.wait_for_sync_rep():
            event['detail'].append('the keeper does not wait for it')
            return False
        # the row that shows is the one that the standby has confirmed
        stored = self.stored_ns()
        for _ in range(self.rng.choice((1, 1, 2))):
            for pid in self.victims(f"{KEEPER} AND wait_event = 'SyncRep'"):
                old.query('SELECT pg_cancel_backend(%s)', (pid,))
                event['detail'].append('canceled')
            self.hold(0, 1.2)
        self.mint_past(stored, self.rng.uniform(0.7, 1.5))
        self.close_to_clients()
        how = self.rng.choice(STOPS[:2])
        event['detail'].append(how)
        old.stop(how)

        def start():
            new.configure()
            new.start()
            new.promote()
            self.take_over(old, new)

        self.repeat(event, new, stored, self.rng.uniform(2.5, 4), start)


def main():
    parser = Parser(minutes=2, rate=16000)
    parser.add_argument('--small-disks', action='store_true')
    options = parser.parse_args()
    if not options.small_disks:
        print('full disk: left out')
    return Torture(options).main()


if __name__ == '__main__':
    sys.exit(main())
