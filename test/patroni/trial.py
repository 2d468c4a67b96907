"""A Patroni cluster under faults: see run.sh.

The clients write down what they receive as those of test/torture do, and its verdict judges that.  The faults:

  switchover     Patroni is asked to make another node the primary: a clean stop, nothing is lost
  crash          the primary's postmaster is killed; Patroni starts it again in its place
  loss           Patroni and PostgreSQL of the primary are killed; another node takes over when its lease has expired
  freeze         both are stopped (SIGSTOP) until another node has taken over, and then go on: two primaries for a moment
  coordinator    etcd is stopped for longer than Patroni waits, so the primary steps down and comes back
"""

import argparse
import array
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import psycopg2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torture'))

import clients                          # noqa: E402
from servers import Down, proc_stat, wait_for   # noqa: E402
from verdict import Verdict             # noqa: E402

NODES = (1, 2, 3)
CLIENTS = 4
TTL_S = 20
FAULTS = ('switchover', 'crash', 'loss', 'switchover', 'freeze')   # again and again, with the coordinator once
EVERY_S = 28                            # from one fault to the next, so that ten take five minutes
FIRST_ID_MS = 100                       # an ID comes no later than this after the first plain insert

# What a client sees of its server's end, and of a connection to one that is no primary any more
SERVERS_END = ('57P01', '57P02', '57P03', '25006', '08001', '08006', 'hung')


# The layout, twitter's, and by how many ticks an ID may be ahead of the clock: max_lead and the tick itself
TIME_SHIFT, SEQUENCE_BITS, MAX_NODE = 22, 12, 1023
LEAD_TICKS = 6


def ids_path(work, client, node):
    """The file of what a client got from a node."""
    return f'{work}/client{client}_{node}.ids'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Node:
    """A PostgreSQL server and its Patroni."""

    def __init__(self, number, work, bindir, etcd_port):
        self.number = number
        self.work = work
        self.name = f'n{number}'
        self.dir = os.path.join(work, self.name)
        self.data = os.path.join(self.dir, 'data')
        os.makedirs(self.dir)
        self.port, self.api = free_port(), free_port()
        self.patroni = None
        user = {'username': 'postgres'}
        config = {
            'scope': 'trial', 'name': self.name,
            'etcd3': {'host': f'127.0.0.1:{etcd_port}'},
            'restapi': {'listen': f'127.0.0.1:{self.api}', 'connect_address': f'127.0.0.1:{self.api}'},
            'bootstrap': {
                'dcs': {
                    'ttl': TTL_S, 'loop_wait': 2, 'retry_timeout': 5, 'maximum_lag_on_failover': 100 << 20,
                    'primary_start_timeout': 30,
                    'postgresql': {
                        'use_pg_rewind': True, 'use_slots': True,
                        'parameters': {'shared_preload_libraries': 'snowflake', 'max_connections': 50,
                                       'shared_buffers': '16MB', 'max_worker_processes': 8, 'wal_level': 'replica',
                                       'wal_log_hints': 'on', 'fsync': 'off', 'log_line_prefix': '%m [%p] %b '}}},
                'initdb': ['no-locale', {'encoding': 'UTF8'}, {'auth': 'trust'}]},
            'postgresql': {
                'listen': f'127.0.0.1:{self.port}', 'connect_address': f'127.0.0.1:{self.port}',
                'data_dir': self.data, 'bin_dir': bindir, 'use_unix_socket': True, 'pgpass': f'{self.dir}/pgpass',
                'authentication': {'superuser': user, 'replication': user, 'rewind': user},
                'pg_hba': ['local all all trust', 'host all all 127.0.0.1/32 trust',
                           'host replication all 127.0.0.1/32 trust'],
                # the node's own part of the configuration, which no other node gets to see
                'parameters': {'snowflake.node_id': number, 'unix_socket_directories': self.dir}}}
        self.config = os.path.join(self.dir, 'patroni.json')
        with open(self.config, 'w') as f:
            json.dump(config, f)            # which is YAML

    def start(self):
        with open(os.path.join(self.dir, 'patroni.log'), 'a') as log:
            self.patroni = subprocess.Popen([sys.executable, '/usr/bin/patroni', self.config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)

    def postmaster(self):
        try:
            with open(os.path.join(self.data, 'postmaster.pid')) as f:
                pid = int(f.readline())
        except (OSError, ValueError):
            return None
        return pid if proc_stat(pid) else None

    def processes(self):
        """Patroni, the postmaster and its children."""
        postmaster = self.postmaster()
        found = [pid for pid in (self.patroni.pid, postmaster) if pid]
        for name in os.listdir('/proc'):
            if name.isdigit() and postmaster and (stat := proc_stat(name)) and stat[0] == postmaster:
                found.append(int(name))
        return found

    def signal(self, number):
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.signal(signal.SIGKILL)
        self.patroni.wait()

    def role(self):
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{self.api}/patroni', timeout=2) as answer:
                said = json.load(answer)
        except OSError as error:
            if not hasattr(error, 'read'):
                return None
            said = json.load(error)
        return said.get('role') if said.get('state') == 'running' else None

    def query(self, sql):
        conn = psycopg2.connect(host=self.dir, port=self.port, user='postgres', dbname='postgres', connect_timeout=5)
        conn.autocommit = True
        try:
            with conn.cursor() as cur:
                cur.execute(sql)
                return cur.fetchall() if cur.description else None
        finally:
            conn.close()


def connect(nodes, rng):
    """A connection to whichever node is the primary."""
    order = rng.sample(nodes, len(nodes))
    conn = psycopg2.connect(host=','.join(node.dir for node in order), port=','.join(str(node.port) for node in order),
                            user='postgres', dbname='postgres', target_session_attrs='read-write', connect_timeout=2)
    conn.autocommit = True
    return conn


class Client:
    """Inserts and writes down what it got, as those of test/torture."""

    def __init__(self, number, nodes, work, stop):
        self.number, self.nodes, self.work, self.stop = number, nodes, work, stop
        self.rng = random.Random(number)
        self.sessions = 0
        self.errors, self.samples = {}, {}

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(os.open(f'{self.work}/client{self.number}.err', os.O_WRONLY | os.O_CREAT, 0o644), 2)
        psycopg2.extensions.set_wait_callback(clients.wait_with_limit)
        # half of the clients give up on a server that does not answer, the others hear what it says when it goes on
        clients.HUNG_AFTER_S = 3 if self.number % 2 else 120
        files = {number: open(ids_path(self.work, self.number, number), 'wb') for number in NODES}
        while not self.stop.value:
            conn = None
            try:
                conn = connect(self.nodes, self.rng)
                self.session(conn, files)
            except (psycopg2.Error, clients.Hung) as error:
                self.count_error(error)
                time.sleep(0.05)
            finally:
                if conn is not None:
                    conn.close()
        for file in files.values():
            file.close()
        with open(f'{self.work}/client{self.number}.json', 'w') as f:
            json.dump({'errors': self.errors, 'samples': self.samples}, f)

    def session(self, conn, files):
        session = self.number * clients.SESSIONS_PER_CLIENT + self.sessions
        self.sessions += 1
        with conn.cursor() as cur:
            for _ in range(2000):
                if self.stop.value:
                    return
                rows = self.rng.choice((1, 1, 1, 10))
                start = time.monotonic_ns()
                cur.execute(f'INSERT INTO minted (note) SELECT $$x$$ FROM generate_series(1, {rows}) RETURNING id')
                ids = array.array('Q', [int(row[0]) for row in cur.fetchall()])
                file = files[ids[0] >> SEQUENCE_BITS & MAX_NODE]
                file.write(clients.CALL.pack(session, len(ids), start, time.monotonic_ns(), 0, 0))
                ids.tofile(file)
                time.sleep(0.004)

    def count_error(self, error):
        text = str(error).strip().split('\n')[0]
        if isinstance(error, clients.Hung):
            code, text = 'hung', 'no answer'
        else:
            code = error.pgcode or ('08001' if 'connection to server' in text else '08006')
        self.errors[code] = self.errors.get(code, 0) + 1
        self.samples.setdefault(code, text)


class Prober:
    """Insert without pause, with or without an ID, and write down when each node first took one after another's."""

    def __init__(self, name, sql, nodes, work, stop):
        self.name, self.sql, self.nodes, self.work, self.stop = name, sql, nodes, work, stop

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(os.open(f'{self.work}/{self.name}.err', os.O_WRONLY | os.O_CREAT, 0o644), 2)
        psycopg2.extensions.set_wait_callback(clients.wait_with_limit)
        clients.HUNG_AFTER_S = 3
        conns, changes, on = {}, [], None
        self.frozen_until = dict.fromkeys(self.nodes, 0)
        while not self.stop.value:
            # the one that took the last insert first
            for node in sorted(self.nodes, key=lambda node: node is not on):
                if (at := self.try_on(node, conns)) is not None:
                    if node is not on:
                        changes.append((node.number, at))
                        on = node
                    break
            time.sleep(0.002)
        with open(f'{self.work}/{self.name}.json', 'w') as f:
            json.dump(changes, f)

    def try_on(self, node, conns):
        """Insert on a node; when it was done, or None if it could not be."""
        if time.monotonic() < self.frozen_until[node]:
            return None
        try:
            if node.number not in conns:
                conns[node.number] = psycopg2.connect(host=node.dir, port=node.port, user='postgres',
                                                      dbname='postgres', connect_timeout=2)
                conns[node.number].autocommit = True
            with conns[node.number].cursor() as cur:
                cur.execute(self.sql)
            return time.monotonic()
        except (psycopg2.Error, clients.Hung) as error:
            if isinstance(error, clients.Hung):
                self.frozen_until[node] = time.monotonic() + 2 * TTL_S
            if getattr(error, 'pgcode', None) != '25006' and node.number in conns:
                conns.pop(node.number).close()
            return None


class Trial:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.failed = self.passed = 0
        self.events = []
        self.nodes = []
        self.etcd = None

    def check(self, what, good):
        print(f'{"ok" if good else "FAILED"}: {what}', flush=True)
        self.passed += bool(good)
        self.failed += not good

    # --- the cluster

    def start_cluster(self):
        port, peer = free_port(), free_port()
        here = 'http://127.0.0.1:'
        with open(os.path.join(self.options.work, 'etcd.log'), 'w') as log:
            self.etcd = subprocess.Popen(
                ['etcd', '--name', 'trial', '--data-dir', os.path.join(self.options.work, 'etcd'),
                 '--listen-client-urls', f'{here}{port}', '--advertise-client-urls', f'{here}{port}',
                 '--listen-peer-urls', f'{here}{peer}', '--initial-advertise-peer-urls', f'{here}{peer}',
                 '--initial-cluster', f'trial={here}{peer}'], stdout=log, stderr=log, start_new_session=True)
        self.nodes = [Node(number, self.options.work, self.options.bindir, port) for number in NODES]
        self.nodes[0].start()
        wait_for(lambda: self.nodes[0].role() == 'master', 120, 'the first node is not up', 0.5)
        self.nodes[0].query('''CREATE EXTENSION snowflake;
                               CREATE TABLE minted (id snowflake PRIMARY KEY DEFAULT snowflake_next(), note text);
                               CREATE TABLE plain (n integer);
                               CREATE TABLE probed (id snowflake DEFAULT snowflake_next())''')
        for node in self.nodes[1:]:
            node.start()
        self.wait_healthy(120)

    def primary(self):
        return next((node for node in self.nodes if node.role() == 'master'), None)

    def wait_healthy(self, timeout):
        wait_for(lambda: sorted(str(node.role()) for node in self.nodes) == ['master', 'replica', 'replica'], timeout,
                 'the cluster does not get healthy', 0.5)

    def show_logs(self):
        for node in self.nodes:
            print(f'--- node {node.number}, {node.role() or "down"}')
            with open(os.path.join(node.dir, 'patroni.log')) as f:
                print(''.join(f.readlines()[-25:]))

    def stop_cluster(self):
        for node in self.nodes:
            if node.patroni is not None and node.patroni.poll() is None:
                node.signal(signal.SIGCONT)
                node.kill()
        if self.etcd is not None:
            self.etcd.send_signal(signal.SIGCONT)
            self.etcd.kill()
            self.etcd.wait()

    # --- faults

    def switchover(self, old):
        candidate = self.rng.choice([node for node in self.nodes if node is not old])
        body = json.dumps({'leader': old.name, 'candidate': candidate.name}).encode()
        request = urllib.request.Request(f'http://127.0.0.1:{old.api}/switchover', body, method='POST')
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        self.wait_new_primary(old)

    def crash(self, old):
        pid = old.postmaster()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: old.postmaster() not in (None, pid) and old.role() == 'master', 60,
                 'the primary is not started again', 0.2)

    def loss(self, old):
        old.kill()
        self.wait_new_primary(old)
        old.start()

    def freeze(self, old):
        # the postmaster first, so that it starts no more processes
        for _ in range(2):
            old.signal(signal.SIGSTOP)
        self.wait_new_primary(old)
        old.signal(signal.SIGCONT)

    def coordinator(self, old):
        self.etcd.send_signal(signal.SIGSTOP)
        wait_for(lambda: self.primary() is None, 60, 'the primary does not step down', 0.2)
        self.etcd.send_signal(signal.SIGCONT)
        wait_for(self.primary, 90, 'there is no primary again', 0.2)

    def wait_new_primary(self, old):
        wait_for(lambda: any(node is not old and node.role() == 'master' for node in self.nodes), 90,
                 'no other node becomes the primary', 0.2)

    def inject(self):
        among = self.options.only or FAULTS
        kinds = [among[i % len(among)] for i in range(self.options.faults)]
        if not self.options.only and len(kinds) > len(FAULTS):
            kinds[len(FAULTS) + 1] = 'coordinator'
        for kind in kinds:
            due = time.monotonic() + EVERY_S
            self.wait_healthy(120)
            old = self.primary()
            began = time.monotonic()
            getattr(self, kind)(old)
            took = time.monotonic() - began
            new = next((node for node in self.nodes if node is not old and node.role() == 'master'), old)
            self.events.append(kind)
            print(f'{kind}: node {old.number} -> {new.number}, {took:.1f} s', flush=True)
            time.sleep(max(0, due - time.monotonic()))
        self.wait_healthy(120)

    # --- the whole

    def run(self):
        began = time.monotonic()
        context = multiprocessing.get_context('fork')
        stop = context.RawValue('b', 0)
        self.start_cluster()
        probers = [Prober('plain', 'INSERT INTO plain VALUES (1)', self.nodes, self.options.work, stop),
                   Prober('probed', 'INSERT INTO probed DEFAULT VALUES', self.nodes, self.options.work, stop)]
        workers = [context.Process(target=worker.run, daemon=True) for worker in
                   [Client(i, self.nodes, self.options.work, stop) for i in range(CLIENTS)] + probers]
        for worker in workers:
            worker.start()
        try:
            self.inject()
        finally:
            stop.value = 1
            for worker in workers:
                worker.join(30)
                if worker.is_alive():
                    worker.kill()
        print(f'{len(self.events)} faults, {time.monotonic() - began:.0f} s')
        self.report()

    def report(self):
        work = self.options.work
        verdict = Verdict([ids_path(work, i, number) for i in range(CLIENTS) for number in NODES])
        verdict.judge()
        self.check_order(verdict)
        errors, samples = {}, {}
        for i in range(CLIENTS):
            with open(f'{work}/client{i}.json') as f:
                seen = json.load(f)
            for code, count in seen['errors'].items():
                errors[code] = errors.get(code, 0) + count
                samples.setdefault(code, seen['samples'][code])
        print(f'IDs recorded: {verdict.ids} in {len(verdict.calls)} calls of {len(verdict.sessions)} sessions')
        for code, count in sorted(errors.items()):
            print(f'  {code}  {count:6}  {samples[code][:120]}')
        self.check(f'{self.options.faults} faults were injected', len(self.events) == self.options.faults)
        self.check(f'{verdict.ids} IDs, {verdict.duplicates} duplicates', verdict.ids > 1000 and verdict.duplicates == 0)
        others = {code: samples[code] for code in errors if code not in SERVERS_END}
        self.check(f'no errors but those of a server\'s end: {others or "none"}', not others)
        self.check_first_ids()

    def check_order(self, verdict):
        """The IDs of one server ascend; those of two, which may mint at once for a moment, as far as they tell the time."""
        found = [Verdict([ids_path(self.options.work, i, number) for i in range(CLIENTS)]) for number in NODES]
        for one in found:
            one.judge()
        between = Verdict([])
        between.calls = [(start, end, smallest + (LEAD_TICKS << TIME_SHIFT), largest, session)
                         for start, end, smallest, largest, session in verdict.calls]
        between.find_disorder()
        within = sum(one.session_violations + one.order_violations for one in found)
        for one in found + [between]:
            for sample in one.session_samples + one.order_samples:
                print(f'  {sample}')
        self.check(f'{within} order violations within a server, {between.order_violations} between them',
                   within + between.order_violations == 0)

    def check_first_ids(self):
        """After each change of the primary, the first ID beside the first plain insert."""
        changes = {}
        for name in ('plain', 'probed'):
            with open(f'{self.options.work}/{name}.json') as f:
                changes[name] = json.load(f)
        later = []
        for number, at in changes['plain'][1:]:
            near = [probed for node, probed in changes['probed'] if node == number and abs(probed - at) < 10]
            if near:
                later.append((min(near, key=lambda probed: abs(probed - at)) - at) * 1000)
        print('first ID after the first plain insert, ms: ' + ', '.join(f'{ms:.0f}' for ms in later))
        self.check(f'after {len(later)} promotions IDs came within {FIRST_ID_MS} ms of the first plain insert',
                   later and max(later) <= FIRST_ID_MS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--work', required=True)
    parser.add_argument('--bindir', required=True)
    parser.add_argument('--faults', type=int, default=10)
    parser.add_argument('--only', type=lambda text: text.split(','), help='kinds of faults, in this order')
    parser.add_argument('--seed', type=int, default=1)
    trial = Trial(parser.parse_args())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(2))
    try:
        trial.run()
    except Down as error:
        trial.check(f'the trial went through: {error}', False)
        trial.show_logs()
    finally:
        trial.stop_cluster()
    print(f'{trial.passed} passed, {trial.failed} failed')
    return 1 if trial.failed else 0


if __name__ == '__main__':
    sys.exit(main())
