"""The servers of the campaign: start, stop, kill, step the clock, back up, copy.

Every server has a number, never used twice.  Its data directory, socket directory, archive, log and clock file carry
that number; where there are small file systems, its WAL and the tablespace of the reservation lie on those of its slot
(0 or 1).  A primary and its standby have different slots.
"""

import contextlib
import itertools
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import time

import psycopg2

STATE_GONE = ('Z', 'X')


class Down(Exception):
    """A server did not do in time what it was asked to."""


def busy():
    """How many processes there are for a processor, at least 1: by that, all takes longer than on an idle machine."""
    return max(os.getloadavg()[0] / os.cpu_count(), 1)


def patience(seconds):
    """More of it where more processes want to run than there are processors for."""
    with open('/proc/loadavg', encoding='ascii') as f:
        average, _, _, running, _ = f.read().split()
    return seconds * max(float(average), int(running.split('/')[0]), 4 * os.cpu_count()) / (4 * os.cpu_count())


def proc_stat(pid):
    """(parent's pid, start time, state) of a process, or None if there is none."""
    try:
        with open(f'/proc/{pid}/stat') as f:
            fields = f.read().rsplit(')', 1)[1].split()
    except (OSError, IndexError):
        return None
    return int(fields[1]), int(fields[19]), fields[0]


def read_pid(data):
    """The pid of the postmaster that a data directory names, or None."""
    try:
        with open(os.path.join(data, 'postmaster.pid')) as f:
            return int(f.readline())
    except (OSError, ValueError):
        return None


def children(pid):
    """The processes whose parent is pid, with their start times."""
    stats = {int(name): proc_stat(name) for name in os.listdir('/proc') if name.isdigit()}
    return {child: stat[1] for child, stat in stats.items() if stat and stat[0] == pid and stat[2] not in STATE_GONE}


def send(number, pids):
    """A signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def cursor(**where):
    """One of a connection of its own."""
    with contextlib.closing(psycopg2.connect(user='postgres', **where)) as conn:
        conn.autocommit = True
        with conn.cursor() as cur:
            yield cur


def query_once(sql, args=None, **where):
    """The rows of a statement in a connection of its own, or None if it has none."""
    with cursor(**where) as cur:
        cur.execute(sql, args)
        return cur.fetchall() if cur.description else None


class Site:
    """What all servers of one campaign share."""

    def __init__(self, options, small_disks=False):
        self.work = options.work
        self.bindir = options.bindir
        self.small_disks = small_disks
        self.count = 0
        self.spreads = itertools.cycle(('4096', '0', '16'))
        self.servers = []

    def path(self, name):
        return os.path.join(self.work, name)

    def run(self, program, *args, env=None, timeout=120):
        """Run one of PostgreSQL's programs; its output goes to tools.log."""
        with open(self.path('tools.log'), 'a') as log:
            log.write(f'$ {program} {" ".join(args)}\n')
            log.flush()
            done = subprocess.run([os.path.join(self.bindir, program), *args], stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log, env=env, timeout=timeout)
            log.write(f'-> {done.returncode}\n')
        return done.returncode

    def stop_all(self):
        for server in self.servers:
            if server.alive():
                server.stop('immediate')


class Server:
    port = 5432
    database = 'one'                    # one that has the extension

    def __init__(self, site, slot):
        self.site = site
        self.slot = slot
        self.number = site.count
        site.count += 1
        site.servers.append(self)
        self.data = site.path(f'd{self.number}')
        self.sock = site.path(f's{self.number}')
        self.archive = site.path(f'a{self.number}')
        self.log = site.path(f'server{self.number}.log')
        self.wal = site.path(f'wal{slot}/w{self.number}') if site.small_disks else os.path.join(self.data, 'pg_wal')
        self.tablespace = site.path(f'spc{slot}/t{self.number}')
        os.mkdir(self.sock)
        os.mkdir(self.archive)
        clock = site.path(f'clock{self.number}')
        with open(clock, 'wb') as f:
            f.write(bytes(4096))
        with open(clock, 'r+b') as f:
            self.clock = mmap.mmap(f.fileno(), 4096)
        self.base_ns = 0                # how far its clock is ahead of the machine's when no fault is on
        self.env = dict(os.environ, LD_PRELOAD=site.path('clock_shim.so'), SNOWFLAKE_CLOCK_FILE=clock,
                        LC_ALL='C', TZ='UTC')

    # --- settings and clock

    def step_clock(self, offset_ns):
        """Set how far this server's clock is ahead of the machine's, for a while."""
        struct.pack_into('=q', self.clock, 0, offset_ns)

    def set_base(self, ns):
        self.base_ns = ns
        self.step_clock(ns)

    def configure(self, sync=False, follow=None, restore_from=(), target=None):
        """Write the campaign's own settings.  Takes effect at the next start or reload.

        follow: the primary of a standby.
        """
        # Only processes die here, never the machine, so fsync is off.  full_page_writes stays on: a SIGKILL can tear a write
        # of 8 kB in two.
        # synchronous_commit is off for everybody, so that the reservation is durable by the keeper's own care.
        # Timeouts of replication are off: a stepped clock would fire them.
        lines = {
            'listen_addresses': '', 'unix_socket_directories': self.sock, 'port': self.port, 'max_connections': '40',
            'shared_buffers': '32MB', 'fsync': 'off', 'synchronous_commit': 'off',
            'wal_level': 'replica', 'max_wal_senders': '6', 'hot_standby': 'on', 'max_wal_size': '48MB',
            'min_wal_size': '8MB', 'wal_keep_size': '16MB', 'wal_sender_timeout': '0', 'wal_receiver_timeout': '0',
            # a standby that has caught up says so only then, and a commit may wait for that
            'wal_receiver_status_interval': '1s',
            'wal_retrieve_retry_interval': '200ms', 'autovacuum': 'off', 'jit': 'off', 'timezone': 'UTC',
            'log_timezone': 'UTC', 'log_line_prefix': '%m [%p] %b ', 'log_min_error_statement': 'panic',
            'log_checkpoints': 'off', 'archive_mode': 'on',
            'archive_command': f'cp %p {self.archive}/%f.$$ && mv {self.archive}/%f.$$ {self.archive}/%f',
            'synchronous_standby_names': 'standby' if sync else '',
        }
        sources = [follow.archive] if follow else [s.archive for s in restore_from]
        if sources:
            lines['restore_command'] = ' || '.join(f'cp {s}/%f %p 2>/dev/null' for s in sources)
        if follow:
            open(os.path.join(self.data, 'standby.signal'), 'w').close()
            lines['primary_conninfo'] = f'host={follow.sock} port={follow.port} user=postgres application_name=standby'
        if target:
            lines['recovery_target_name'] = target
            lines['recovery_target_action'] = 'promote'
        lines.update(self.extension_settings())
        with open(os.path.join(self.data, 'torture.conf.new'), 'w') as f:
            f.writelines(f"{name} = '{value}'\n" for name, value in lines.items())
        os.replace(os.path.join(self.data, 'torture.conf.new'), os.path.join(self.data, 'torture.conf'))

    def extension_settings(self):
        return {
            'shared_preload_libraries': 'snowflake',
            'snowflake.node_id': '1',           # ALTER SYSTEM overrides it
            'snowflake.jump_patience': '2s',    # so that faults last longer than that, or not
            'snowflake.spread': next(self.site.spreads),
        }

    # --- life and death

    def initdb(self):
        wal = ('-X', self.wal) if self.site.small_disks else ()
        if self.site.run('initdb', '-D', self.data, *wal, '-U', 'postgres', '-A', 'trust', '-N',
                         '--no-locale', '-E', 'UTF8', '--wal-segsize=4') != 0:
            raise Down('initdb failed, see tools.log')
        with open(os.path.join(self.data, 'postgresql.conf'), 'a') as f:
            f.write("include 'torture.conf'\n")

    def postmaster(self):
        """Pid of the running postmaster, or None."""
        pid = read_pid(self.data)
        stat = proc_stat(pid) if pid else None
        if stat is None or stat[2] in STATE_GONE:
            return None
        # the pid may belong to somebody else by now
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as f:
                if self.data.encode() not in f.read().split(b'\0'):
                    return None
        except OSError:
            return None
        return pid

    def alive(self):
        return self.postmaster() is not None

    def start(self, timeout=60, must=True):
        # pg_ctl compares the new postmaster's start time with its own clock, so it runs under the shim as well
        rc = self.site.run('pg_ctl', '-D', self.data, '-l', self.log, '-w', '-t', str(timeout), 'start', env=self.env)
        if rc != 0 and must:
            raise Down(f'server {self.number} did not start, see {self.log}')
        return rc == 0

    def stop(self, how):
        """Stop by 'fast', 'immediate' or 'kill'; return when the last process has gone."""
        pid = self.postmaster()
        if pid is None:
            return
        family = children(pid)
        family[pid] = proc_stat(pid)[1] if proc_stat(pid) else 0
        if how == 'kill':
            os.kill(pid, signal.SIGKILL)
        else:
            if self.site.run('pg_ctl', '-D', self.data, '-m', how, '-t', '30', '-w', 'stop') != 0:
                os.kill(pid, signal.SIGKILL)
        # who was stopped has to hear of it
        send(signal.SIGCONT, family)
        wait_for(lambda: not any((s := proc_stat(p)) and s[1] == started and s[2] not in STATE_GONE
                                 for p, started in family.items()), 30,
                 f'processes of server {self.number} outlive their postmaster')

    @staticmethod
    @contextlib.contextmanager
    def stopped(pids):
        """These processes stand still meanwhile."""
        send(signal.SIGSTOP, pids)
        try:
            yield
        finally:
            send(signal.SIGCONT, pids)

    def reload(self):
        self.site.run('pg_ctl', '-D', self.data, 'reload')

    def where(self, dbname='postgres'):
        return {'host': self.sock, 'port': self.port, 'dbname': dbname, 'connect_timeout': 5}

    def query(self, sql, args=None, dbname='postgres'):
        """Run one statement on a connection of its own; rows, or None if it has none."""
        return query_once(sql, args, **self.where(dbname))

    def answers(self):
        """Does it take connections, and as a primary?"""
        try:
            return self.query('SELECT NOT pg_is_in_recovery()')[0][0]
        except psycopg2.Error:
            return False

    def bring_up(self, timeout=60):
        """Wait until it serves as a primary, starting it whenever it has no postmaster."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if not self.alive():
                self.start(must=False)
            elif self.answers():
                return
            else:
                time.sleep(0.02)
        raise Down(f'server {self.number} is not up after {timeout} s, see {self.log}')

    def promote(self):
        if self.site.run('pg_ctl', '-D', self.data, '-w', '-t', '60', 'promote') != 0:
            raise Down(f'server {self.number} was not promoted, see {self.log}')
        wait_for(self.answers, 30, f'server {self.number} is not a primary after its promotion')

    def remove(self):
        """Stop it for good and drop its files; the log and the clock file stay."""
        if self.alive():
            self.stop('immediate')
        for path in (self.data, self.wal, self.tablespace, self.archive, self.sock):
            shutil.rmtree(path, ignore_errors=True)
        self.clock.close()
        self.site.servers.remove(self)


class Backup:
    """A base backup of a server, from which its standby and its restored successor are copied."""

    def __init__(self, server):
        site = server.site
        self.site = site
        self.of = server
        self.data = site.path('base')
        self.tablespace = site.path('base_spc')
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.tablespace, ignore_errors=True)
        args = ['-D', self.data, '-h', server.sock, '-p', str(server.port), '-U', 'postgres', '-c', 'fast', '-X', 'stream',
                '--no-sync', '--no-manifest']
        if os.path.isdir(server.tablespace):
            args += ['-T', f'{server.tablespace}={self.tablespace}']
        if site.run('pg_basebackup', *args) != 0:
            raise Down('pg_basebackup failed, see tools.log')
        self.prune_archive()

    def prune_archive(self):
        """Drop archived WAL from before this backup."""
        with open(os.path.join(self.data, 'backup_label')) as f:
            first = re.search(r'START WAL LOCATION: \S+ \(file (\w{24})\)', f.read()).group(1)
        for name in os.listdir(self.of.archive):
            if re.fullmatch(r'\w{24}', name) and name[8:] < first[8:]:
                os.remove(os.path.join(self.of.archive, name))

    def copy_to(self, server):
        """Lay this backup out as the data directory of a new server."""
        subprocess.run(['cp', '-a', '--reflink=auto', self.data, server.data], check=True)
        if self.site.small_disks:
            shutil.move(os.path.join(server.data, 'pg_wal'), server.wal)
            os.symlink(server.wal, os.path.join(server.data, 'pg_wal'))
        links = os.path.join(server.data, 'pg_tblspc')
        for name in os.listdir(links):
            subprocess.run(['cp', '-a', self.tablespace, server.tablespace], check=True)
            os.remove(os.path.join(links, name))
            os.symlink(server.tablespace, os.path.join(links, name))


def wait_for(condition, timeout, complaint, pause=0.02):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise Down(complaint)
        time.sleep(pause)
