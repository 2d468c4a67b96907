"""Minting in a Patroni cluster: three nodes with one configuration, that of
doc/fleet.md, which lease their node IDs from Patroni's own etcd; PgBouncer in
front of them, all on the loopback interface; six clients, and faults that make
the primary change.  No ID may come twice or out of order, clients may see the
end of their server but no error of the extension's, and the first ID has to come
soon after a promotion.

  bash test/run.sh patroni                       10 faults, which takes some five minutes
  bash test/run.sh patroni --faults 4 --seed 7
  bash test/run.sh patroni --faults 3 --only switchover,freeze
  bash test/run.sh patroni --synchronous         replication is asynchronous otherwise
  bash test/run.sh patroni --record /tmp/record.json
                                                 what it came to, for test/torture/records.py
  bash test/run.sh patroni --own-node-ids        each node has one in its own configuration
  bash test/run.sh patroni --one-node-id         the same for all: it has to find duplicates

All nodes have one configuration, the patroni.yml of doc/fleet.md with other addresses.  What a node has for itself, its
name, ports and directories, is in its environment.

The clients write down what they receive as those of test/torture do, and its verdict judges that.  Most of them connect
through a PgBouncer in transaction mode, which Patroni's callback points at the primary; the others have a list of
hosts.  The faults:

  switchover     Patroni is asked to make another node the primary: a clean stop, nothing is lost
  crash          the primary's postmaster is killed; Patroni starts it again in its place
  loss           Patroni and PostgreSQL of the primary are killed; another node takes over when its lease has expired
  freeze         both are stopped (SIGSTOP) until another node has taken over, and then go on: two primaries for a moment
  coordinator    etcd is stopped for longer than Patroni waits, so the primary steps down and comes back
"""

import argparse
import array
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psycopg2
import yaml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torture'))

import clients                          # noqa: E402
import record                           # noqa: E402
from servers import Down, busy, proc_stat, wait_for   # noqa: E402
from verdict import Verdict             # noqa: E402

NODES = (1, 2, 3)
CLIENTS = 6
DIRECT_CLIENTS = 2                      # of these, without the pooler
TTL_S = 20
FAULTS = ('switchover', 'crash', 'loss', 'switchover', 'freeze')   # again and again, with the coordinator once
EVERY_S = 12                            # from one fault to the next, at least
LEASE_S = 10
MEND_AFTER_S = 20                       # a standby that does not follow for so long is copied again
FIRST_ID_MS = 2000                      # an ID comes no later than this after a promotion
BEHIND_PLAIN_MS = 100                   # and no later after an insert without one; busy machines have more

# What a client sees of its server's end, through PgBouncer too, and of a connection to one that is no primary any more
SERVERS_END = ('57P01', '57P02', '57P03', '25006', '08001', '08006', '08P01', 'hung')
# What a server says that is no primary
STANDBY = ('25006', '22012')


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


def page_config():
    """The patroni.yml of the documentation."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'doc', 'fleet.md')
    with open(page) as f:
        return yaml.safe_load(re.search('^```yaml\n(.*?)^```$', f.read(), re.M | re.S).group(1))


class Pooler:
    """PgBouncer.  Patroni calls a script of it whenever a node's role has changed."""

    def __init__(self, work):
        self.dir = os.path.join(work, 'pooler')
        os.makedirs(self.dir)
        self.port = free_port()
        self.process = None
        self.callback = f'/bin/bash {self.dir}/callback.sh'
        with open(f'{self.dir}/pgbouncer.ini', 'w') as f:
            f.write(f'''%include {self.dir}/databases.ini
[pgbouncer]
unix_socket_dir = {self.dir}
listen_port = {self.port}
pidfile = {self.dir}/pid
auth_type = any
pool_mode = transaction
default_pool_size = 10
server_connect_timeout = 2
server_login_retry = 0.2
query_wait_timeout = 5
log_connections = 0
log_disconnections = 0
''')
        # Patroni adds the action, the role and the cluster; the port of the node is in its environment
        with open(f'{self.dir}/callback.sh', 'w') as f:
            f.write(f'''case $2 in master|primary) ;; *) exit 0 ;; esac
echo "[databases]
postgres = host={work} port=$TRIAL_PORT user=postgres" >{self.dir}/databases.$$
mv {self.dir}/databases.$$ {self.dir}/databases.ini
kill -HUP "$(cat {self.dir}/pid)"
''')

    def start(self, port):
        with open(f'{self.dir}/databases.ini', 'w') as f:
            f.write(f'[databases]\npostgres = host={os.path.dirname(self.dir)} port={port} user=postgres\n')
        program = shutil.which('pgbouncer', path=f'{os.environ["PATH"]}:/usr/sbin')
        with open(f'{self.dir}/log', 'w') as log:
            self.process = subprocess.Popen([program, f'{self.dir}/pgbouncer.ini'], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)
        wait_for(lambda: os.path.exists(f'{self.dir}/pid'), 20, 'PgBouncer does not start')

    def connect(self):
        conn = psycopg2.connect(host=self.dir, port=self.port, user='postgres', dbname='postgres')
        conn.autocommit = True
        return conn


class Node:
    """A PostgreSQL server and its Patroni."""

    def __init__(self, number, work, config):
        self.number = number
        self.work = work
        self.name = f'n{number}'
        self.dir = os.path.join(work, self.name)
        self.data = os.path.join(self.dir, 'data')
        os.makedirs(self.dir)
        self.port, self.api = free_port(), free_port()
        self.config = config
        self.patroni = None
        here, api = f'127.0.0.1:{self.port}', f'127.0.0.1:{self.api}'
        self.env = dict(os.environ, TRIAL_PORT=str(self.port), PATRONI_NAME=self.name,
                        PATRONI_RESTAPI_LISTEN=api, PATRONI_RESTAPI_CONNECT_ADDRESS=api,
                        PATRONI_POSTGRESQL_LISTEN=here, PATRONI_POSTGRESQL_CONNECT_ADDRESS=here,
                        PATRONI_POSTGRESQL_DATA_DIR=self.data, PATRONI_POSTGRESQL_PGPASS=f'{self.dir}/pgpass')

    def start(self):
        with open(os.path.join(self.dir, 'patroni.log'), 'a') as log:
            self.patroni = subprocess.Popen([sys.executable, '/usr/bin/patroni', self.config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=self.env, start_new_session=True)

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
        conn = psycopg2.connect(host=self.work, port=self.port, user='postgres', dbname='postgres', connect_timeout=5)
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
    conn = psycopg2.connect(host=','.join(node.work for node in order), port=','.join(str(node.port) for node in order),
                            user='postgres', dbname='postgres', target_session_attrs='read-write', connect_timeout=2)
    conn.autocommit = True
    return conn


class Client:
    """Inserts and writes down what it got, as those of test/torture."""

    def __init__(self, number, nodes, pooler, work, stop):
        self.number, self.nodes, self.pooler, self.work, self.stop = number, nodes, pooler, work, stop
        self.rng = random.Random(number)
        self.sessions = 0
        self.minted_with = {}               # the node IDs of each server
        self.errors, self.samples = {}, {}

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(os.open(f'{self.work}/client{self.number}.err', os.O_WRONLY | os.O_CREAT, 0o644), 2)
        psycopg2.extensions.set_wait_callback(clients.wait_with_limit)
        # half of the clients give up on a server that does not answer, the others hear what it says when it goes on
        clients.HUNG_AFTER_S = 3 if self.number % 2 else 120
        self.files = {node.port: open(ids_path(self.work, self.number, node.number), 'wb') for node in self.nodes}
        while not self.stop.value:
            conn = None
            try:
                conn = self.pooler.connect() if self.pooler is not None else connect(self.nodes, self.rng)
                self.session(conn)
            except (psycopg2.Error, clients.Hung) as error:
                self.count_error(error)
                time.sleep(0.05)
            finally:
                if conn is not None:
                    conn.close()
        for file in self.files.values():
            file.close()
        with open(f'{self.work}/client{self.number}.json', 'w') as f:
            json.dump({'errors': self.errors, 'samples': self.samples,
                       'minted_with': {port: sorted(nodes) for port, nodes in self.minted_with.items()}}, f)

    def session(self, conn):
        session = self.number * clients.SESSIONS_PER_CLIENT + self.sessions
        self.sessions += 1
        with conn.cursor() as cur:
            for _ in range(2000):
                if self.stop.value:
                    return
                rows = self.rng.choice((1, 1, 1, 10))
                start = time.monotonic_ns()
                cur.execute(f'''INSERT INTO minted (note) SELECT $$x$$ FROM generate_series(1, {rows})
                                RETURNING id, current_setting('port')''')
                answer = cur.fetchall()
                ids = array.array('Q', [int(row[0]) for row in answer])
                port = int(answer[0][1])
                self.minted_with.setdefault(port, set()).add(ids[0] >> SEQUENCE_BITS & MAX_NODE)
                file = self.files[port]
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
    """Run without pause what only a primary does, and write down when each node first did after another."""

    def __init__(self, name, sql, nodes, work, stop, frozen):
        self.name, self.sql, self.nodes, self.work, self.stop, self.frozen = name, sql, nodes, work, stop, frozen

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(os.open(f'{self.work}/{self.name}.err', os.O_WRONLY | os.O_CREAT, 0o644), 2)
        psycopg2.extensions.set_wait_callback(clients.wait_with_limit)
        clients.HUNG_AFTER_S = 3
        conns, changes, on = {}, [], None
        while not self.stop.value:
            # the one that did it last comes first
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
        """Do it on a node; when it was done, or None if it could not be."""
        if self.frozen[node.number]:
            return None
        try:
            if node.number not in conns:
                conns[node.number] = psycopg2.connect(host=node.work, port=node.port, user='postgres',
                                                      dbname='postgres', connect_timeout=2)
                conns[node.number].autocommit = True
            with conns[node.number].cursor() as cur:
                cur.execute(self.sql)
            return time.monotonic()
        except (psycopg2.Error, clients.Hung) as error:
            if getattr(error, 'pgcode', None) not in STANDBY and node.number in conns:
                conns.pop(node.number).close()
            return None


class Trial:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.passed = 0
        self.failed = []                    # what was checked in vain
        self.events = []
        self.mend_at = math.inf
        self.nodes = []
        self.etcd = self.pooler = None
        self.context = multiprocessing.get_context('fork')
        self.frozen = self.context.RawArray('b', max(NODES) + 1)

    def check(self, what, good):
        print(f'{"ok" if good else "FAILED"}: {what}', flush=True)
        self.passed += bool(good)
        if not good:
            self.failed.append(what)

    # --- the cluster

    def write_config(self, etcd_port, number=None):
        """The configuration of all nodes, or the one of a node that has a node ID of its own."""
        config = page_config()
        dcs, user = config['bootstrap']['dcs'], {'username': 'postgres'}
        config['etcd3'] = {'hosts': f'127.0.0.1:{etcd_port}'}
        dcs.update({'ttl': TTL_S, 'loop_wait': 2, 'retry_timeout': 5, 'maximum_lag_on_failover': 100 << 20,
                    'primary_start_timeout': 30, 'synchronous_mode': self.options.synchronous})
        parameters = dcs['postgresql']['parameters']
        parameters.update({'max_connections': 50, 'shared_buffers': '16MB', 'fsync': 'off',
                           'log_line_prefix': '%m [%p] %b '})
        if self.options.ids == 'leased':
            parameters['snowflake.node_source'] = f'etcd://127.0.0.1:{etcd_port}/snowflake'
            parameters['snowflake.lease'] = f'{LEASE_S}s'
        else:
            del parameters['snowflake.node_source']
            if number is None:
                parameters['snowflake.node_id'] = 1
        config['bootstrap']['initdb'].append({'auth': 'trust'})
        config['postgresql'].update({
            'bin_dir': self.options.bindir,
            'basebackup': {'checkpoint': 'fast'},
            # what pg_rewind cannot mend is copied again
            'remove_data_directory_on_rewind_failure': True, 'remove_data_directory_on_diverged_timelines': True,
            'authentication': {'superuser': user, 'replication': user, 'rewind': user},
            'pg_hba': ['local all all trust', 'host all all 127.0.0.1/32 trust',
                       'host replication all 127.0.0.1/32 trust'],
            'parameters': {'unix_socket_directories': self.options.work},
            'callbacks': {'on_start': self.pooler.callback, 'on_role_change': self.pooler.callback}})
        if number is not None:
            config['postgresql']['parameters']['snowflake.node_id'] = number
        path = os.path.join(self.options.work, f'patroni{number or ""}.yml')
        with open(path, 'w') as f:
            yaml.safe_dump(config, f)
        return path

    def start_cluster(self):
        port, peer = free_port(), free_port()
        here = 'http://127.0.0.1:'
        with open(os.path.join(self.options.work, 'etcd.log'), 'w') as log:
            self.etcd = subprocess.Popen(
                ['etcd', '--name', 'trial', '--data-dir', os.path.join(self.options.work, 'etcd'),
                 '--listen-client-urls', f'{here}{port}', '--advertise-client-urls', f'{here}{port}',
                 '--listen-peer-urls', f'{here}{peer}', '--initial-advertise-peer-urls', f'{here}{peer}',
                 '--initial-cluster', f'trial={here}{peer}'], stdout=log, stderr=log, start_new_session=True)
        self.pooler = Pooler(self.options.work)
        own, shared = self.options.ids == 'own', self.write_config(port)
        self.nodes = [Node(number, self.options.work, self.write_config(port, number) if own else shared)
                      for number in NODES]
        self.nodes[0].start()
        wait_for(lambda: self.nodes[0].role() == 'master', 120, 'the first node is not up', 0.5)
        self.nodes[0].query('''CREATE EXTENSION snowflake;
                               CREATE TABLE minted (id snowflake PRIMARY KEY DEFAULT snowflake_next(), note text);
                               CREATE TABLE plain (n integer);
                               CREATE TABLE probed (id snowflake DEFAULT snowflake_next())''')
        if self.options.ids == 'leased':
            self.nodes[0].query('SELECT snowflake_fleet_create()')
            self.check('no configuration has a node ID', self.nodes[0].query('SHOW snowflake.node_id') == [('-1',)])
        self.pooler.start(self.nodes[0].port)
        for node in self.nodes[1:]:
            node.start()
        self.wait_healthy(120)

    def primary(self):
        return next((node for node in self.nodes if node.role() == 'master'), None)

    def healthy(self):
        """Is there a primary that both of the others follow?  One that does not would choose a timeline that exists."""
        primary = self.primary()
        others = [node for node in self.nodes if node is not primary]
        try:
            following = primary and [name for name, in primary.query(
                "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'")]
        except psycopg2.Error:
            following = None
        if following is None:
            return False
        lost = [node for node in others if node.name not in following]
        if lost and time.monotonic() > self.mend_at:
            self.mend_at = time.monotonic() + MEND_AFTER_S
            for node in lost:
                self.reinitialize(node)
        return (not lost and all(node.role() == 'replica' for node in others) and
                (not self.options.synchronous or self.has_synchronous(primary)))

    @staticmethod
    def has_synchronous(primary):
        """Does Patroni know which standby is synchronous?  PostgreSQL does earlier, but no other is promoted."""
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{primary.api}/cluster', timeout=10) as answer:
                return any(member['role'] == 'sync_standby' for member in json.load(answer)['members'])
        except OSError:
            return False

    @staticmethod
    def reinitialize(node):
        """Have a node copied again, as an administrator would.

        Patroni 3.0's primary that was frozen takes its lock back from the one that has it meanwhile.  That one, and the
        other standby, are then on a timeline that the primary does not know.
        """
        request = urllib.request.Request(f'http://127.0.0.1:{node.api}/reinitialize', b'{}', method='POST')
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
            print(f'  node {node.number} follows nobody and is copied again', flush=True)
        except OSError:
            pass                            # it is busy with something else

    def wait_healthy(self, timeout):
        self.mend_at = time.monotonic() + MEND_AFTER_S
        wait_for(self.healthy, timeout, 'the cluster does not get healthy', 0.5)

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
        if self.pooler is not None and self.pooler.process is not None:
            self.pooler.process.kill()
            self.pooler.process.wait()
        if self.etcd is not None:
            self.etcd.send_signal(signal.SIGCONT)
            self.etcd.kill()
            self.etcd.wait()

    # --- faults

    def switchover(self, old):
        body = {'leader': old.name}
        if not self.options.synchronous:    # otherwise it is the synchronous standby's turn
            body['candidate'] = self.rng.choice([node for node in self.nodes if node is not old]).name
        request = urllib.request.Request(f'http://127.0.0.1:{old.api}/switchover', json.dumps(body).encode(),
                                         method='POST')

        def asked():
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answer.read()
            except urllib.error.HTTPError as error:
                if error.code != 412:       # Patroni does not know yet who is synchronous
                    raise
                return False
            return True

        wait_for(asked, 30, 'Patroni refuses a switchover', 1)
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
        self.frozen[old.number] = 1
        self.wait_new_primary(old)
        old.signal(signal.SIGCONT)
        self.frozen[old.number] = 0

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
            event = {'kind': kind, 'at': time.monotonic_ns(), 'applied': True}
            getattr(self, kind)(old)
            event['over'] = time.monotonic_ns()
            new = next((node for node in self.nodes if node is not old and node.role() == 'master'), old)
            event['changed'] = new is not old
            self.events.append(event)
            print(f'{kind}: node {old.number} -> {new.number}, {(event["over"] - event["at"]) / 1e9:.1f} s', flush=True)
            time.sleep(max(0, due - time.monotonic()))
        self.wait_healthy(120)

    # --- the whole

    def run(self):
        began = time.monotonic()
        work, stop = self.options.work, self.context.RawValue('b', 0)
        self.start_cluster()
        probers = [Prober(name, sql, self.nodes, work, stop, self.frozen) for name, sql in
                   (('promoted', 'SELECT 1 / (NOT pg_is_in_recovery())::integer'),
                    ('plain', 'INSERT INTO plain VALUES (1)'),
                    ('probed', 'INSERT INTO probed DEFAULT VALUES'))]
        workers = [self.context.Process(target=worker.run, daemon=True) for worker in
                   [Client(i, self.nodes, None if i < DIRECT_CLIENTS else self.pooler, work, stop)
                    for i in range(CLIENTS)] + probers]
        for worker in workers:
            worker.start()
        try:
            self.inject()
        except Down as error:
            # what was recorded until then is judged all the same
            self.check(f'the trial went through: {error}', False)
            self.show_logs()
        finally:
            stop.value = 1
            for worker in workers:
                worker.join(30)
                if worker.is_alive():
                    worker.kill()
        print(f'{len(self.events)} faults, {time.monotonic() - began:.0f} s')
        self.report(time.monotonic() - began)

    def report(self, seconds):
        work, until = self.options.work, time.monotonic_ns()
        verdict = Verdict([ids_path(work, i, number) for i in range(CLIENTS) for number in NODES])
        verdict.judge()
        disorder = self.check_order(verdict)
        errors, samples, minted_with = {}, {}, {node.port: set() for node in self.nodes}
        for i in range(CLIENTS):
            with open(f'{work}/client{i}.json') as f:
                seen = json.load(f)
            for port, nodes in seen['minted_with'].items():
                minted_with[int(port)].update(nodes)
            for code, count in seen['errors'].items():
                errors[code] = errors.get(code, 0) + count
                samples.setdefault(code, seen['samples'][code])
        print(f'IDs recorded: {verdict.ids} in {len(verdict.calls)} calls of {len(verdict.sessions)} sessions')
        for code, count in sorted(errors.items()):
            print(f'  {code}  {count:6}  {samples[code][:120]}')
        for node in self.nodes:
            print(f'  node IDs of {node.name}: ' + ', '.join(map(str, sorted(minted_with[node.port]))))
        changes = sum(event['changed'] for event in self.events)
        self.check(f'{self.options.faults} faults were injected, the primary changed {changes} times',
                   len(self.events) == self.options.faults)
        if self.options.ids == 'one':
            # what the other ways are for, and what this trial would see
            self.check(f'{verdict.ids} IDs, {verdict.duplicates} duplicates, which one node ID for all brings',
                       verdict.duplicates > 0)
        else:
            self.check(f'{verdict.ids} IDs, {verdict.duplicates} duplicates',
                       verdict.ids > 1000 and verdict.duplicates == 0)
        others = {code: samples[code] for code in errors if code not in SERVERS_END}
        self.check(f'no errors but those of a server\'s end: {others or "none"}', not others)
        self.check_first_ids()
        record.write_record(self.options, f'patroni{"" if self.options.ids == "leased" else ", " + self.options.ids}',
                            seconds=seconds, ids=verdict.ids, duplicates=verdict.duplicates, disorder=disorder,
                            failed=self.failed, faults=record.faults_of(verdict.waits(self.events, until)))

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
        return within + between.order_violations

    def check_first_ids(self):
        """After each change of the primary, the first ID beside the promotion and the first plain insert."""
        changes = {}
        for name in ('promoted', 'plain', 'probed'):
            with open(f'{self.options.work}/{name}.json') as f:
                changes[name] = json.load(f)

        def later(name, number, at):
            near = [then for node, then in changes[name] if node == number and abs(then - at) < 15]
            return (min(near, key=lambda then: abs(then - at)) - at) * 1000 if near else math.inf

        waits = []      # what happened, and how long after it, in ms, came a row and an ID
        for number, at in changes['promoted'][1:]:
            kind = [event['kind'] for event in self.events if event['at'] <= at * 1e9]
            waits.append((kind[-1] if kind else 'start', later('plain', number, at), later('probed', number, at)))
        print('first plain insert and first ID after the promotion, ms: ' +
              ', '.join(f'{kind} {plain:.0f} {probed:.0f}' for kind, plain, probed in waits))
        slowest = max((probed for _, _, probed in waits), default=math.inf)
        self.check(f'after {len(waits)} promotions the first ID came within {slowest:.0f} ms', slowest <= FIRST_ID_MS * busy())
        behind = max((probed - plain for _, plain, probed in waits), default=math.inf)
        self.check(f'at most {behind:.0f} ms after the first plain insert', behind <= BEHIND_PLAIN_MS * busy())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--work', required=True)
    parser.add_argument('--bindir', required=True)
    parser.add_argument('--faults', type=int, default=10)
    parser.add_argument('--only', type=lambda text: text.split(','), help='kinds of faults, in this order')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--synchronous', action='store_true', help='with a synchronous standby')
    parser.add_argument('--own-node-ids', dest='ids', action='store_const', const='own', default='leased')
    parser.add_argument('--one-node-id', dest='ids', action='store_const', const='one', help='the same one for all')
    record.add_arguments(parser)
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
    print(f'{trial.passed} passed, {len(trial.failed)} failed')
    return 1 if trial.failed else 0


if __name__ == '__main__':
    sys.exit(main())
