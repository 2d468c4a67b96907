"""The campaign over a Patroni cluster.

Three nodes have one configuration, that of doc/fleet.md with other addresses, and lease their node IDs from Patroni's own
etcd.  What a node has for itself, its name, ports and directories, is in its environment.  Faults make the primary change.
Clients may see the end of their server, and that the lease of a frozen one has ended, but no other error of the extension's.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import psycopg2
import yaml

import clients
from campaign import Campaign, Parser
from coordinators import Etcd, free_ports
from servers import Site, busy, children, proc_stat, query_once, read_pid, send, wait_for

NODES = (1, 2, 3)
CLIENTS = 6
TTL_S = 20
LEASE_S = 10
MEND_AFTER_S = 20                       # a standby that does not follow for so long is copied again

# What a client sees of its server's end, and of a connection to one that is no primary any more
SERVERS_END = ('57P01', '57P02', '57P03', '25006', '08001', '08006', 'hung')


def page_config():
    """The patroni.yml of the documentation."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'doc', 'fleet.md')
    with open(page) as f:
        return yaml.safe_load(re.search('^```yaml\n(.*?)^```$', f.read(), re.M | re.S).group(1))


class Node:
    """A PostgreSQL server and its Patroni."""

    def __init__(self, number, work, config):
        self.number = number
        self.work = work
        self.name = f'n{number}'
        self.dir = os.path.join(work, self.name)
        self.data = os.path.join(self.dir, 'data')
        self.log = os.path.join(self.dir, 'patroni.log')
        os.makedirs(self.dir)
        self.port, self.api = free_ports(2)
        self.config = config
        self.patroni = None
        here, api = f'127.0.0.1:{self.port}', f'127.0.0.1:{self.api}'
        self.env = dict(os.environ, PATRONI_NAME=self.name,
                        PATRONI_RESTAPI_LISTEN=api, PATRONI_RESTAPI_CONNECT_ADDRESS=api,
                        PATRONI_POSTGRESQL_LISTEN=here, PATRONI_POSTGRESQL_CONNECT_ADDRESS=here,
                        PATRONI_POSTGRESQL_DATA_DIR=self.data, PATRONI_POSTGRESQL_PGPASS=f'{self.dir}/pgpass')

    def start(self):
        with open(self.log, 'a') as log:
            self.patroni = subprocess.Popen([sys.executable, '/usr/bin/patroni', self.config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=self.env, start_new_session=True)

    def postmaster(self):
        pid = read_pid(self.data)
        return pid if pid and proc_stat(pid) else None

    def processes(self):
        """Patroni, the postmaster and its children; the first two start no others when they have stopped."""
        postmaster = self.postmaster()
        return [self.patroni.pid, postmaster, *children(postmaster)] if postmaster else [self.patroni.pid]

    def signal(self, number):
        send(number, self.processes())

    def kill(self):
        self.signal(signal.SIGKILL)
        self.patroni.wait()

    def ask(self, what, body):
        """A request to Patroni."""
        request = urllib.request.Request(f'http://127.0.0.1:{self.api}/{what}', json.dumps(body).encode(), method='POST')
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()

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
        return query_once(sql, host=self.work, port=self.port, dbname='postgres', connect_timeout=5)


class Client(clients.Client):
    settings = ()
    goes_on = False                     # by an error, it learns who the primary is

    def __init__(self, number, campaign):
        super().__init__(number, campaign.options, campaign.shared[0], CLIENTS)
        self.nodes = campaign.nodes

    def run(self):
        # half of them give up on a server that does not answer, the others hear what it says when it goes on
        clients.HUNG_AFTER_S = 3 if self.number % 2 else 120
        super().run()

    def connect(self, endpoint):
        """To whichever node is the primary."""
        order = self.rng.sample(self.nodes, len(self.nodes))
        conn = psycopg2.connect(host=','.join(node.work for node in order), port=','.join(str(node.port) for node in order),
                                user='postgres', dbname='postgres', target_session_attrs='read-write', connect_timeout=2)
        self.place = next(node.number for node in self.nodes if node.port == conn.info.port)
        return conn

    def one_call(self, cur):
        rows = self.rng.choice((1, 1, 1, 10))
        self.mint(cur, 0, f"INSERT INTO minted (note) SELECT 'x' FROM generate_series(1, {rows}) RETURNING id")


class Patroni(Campaign):
    name = 'patroni'
    least = 1, 1000
    boundless = ()
    place = 'node {}'.format

    def __init__(self, options):
        super().__init__(options)
        self.site = Site(options)
        self.shared = [clients.Shared(self.context, CLIENTS)]
        self.mend_at = math.inf
        self.nodes = []
        self.etcd = Etcd(self.site, 1)

    def kinds(self):
        def kind(name, fault):
            return name, lambda event: self.strike(event, fault)
        return [*[kind('switchover', self.switchover)] * 2, kind('crash', self.crash), kind('loss', self.loss),
                kind('freeze', self.freeze), kind('coordinator', self.coordinator)]

    def line_of(self, place):
        return place

    # --- the cluster

    def write_config(self, etcd_port):
        """The configuration of all nodes."""
        config = page_config()
        dcs, user = config['bootstrap']['dcs'], {'username': 'postgres'}
        config['etcd3'] = {'hosts': f'127.0.0.1:{etcd_port}'}
        dcs.update({'ttl': TTL_S, 'loop_wait': 2, 'retry_timeout': 5, 'maximum_lag_on_failover': 100 << 20,
                    'primary_start_timeout': 30})
        parameters = dcs['postgresql']['parameters']
        parameters.update({'max_connections': 50, 'shared_buffers': '16MB', 'fsync': 'off',
                           'log_line_prefix': '%m [%p] %b '})
        parameters['snowflake.node_source'] = f'etcd://127.0.0.1:{etcd_port}/snowflake'
        parameters['snowflake.lease'] = f'{LEASE_S}s'
        config['bootstrap']['initdb'].append({'auth': 'trust'})
        config['postgresql'].update({
            'bin_dir': self.options.bindir,
            'basebackup': {'checkpoint': 'fast'},
            # what pg_rewind cannot mend is copied again
            'remove_data_directory_on_rewind_failure': True, 'remove_data_directory_on_diverged_timelines': True,
            'authentication': {'superuser': user, 'replication': user, 'rewind': user},
            'pg_hba': ['local all all trust', 'host all all 127.0.0.1/32 trust',
                       'host replication all 127.0.0.1/32 trust'],
            'parameters': {'unix_socket_directories': self.options.work}})
        path = os.path.join(self.options.work, 'patroni.yml')
        with open(path, 'w') as f:
            yaml.safe_dump(config, f)
        return path

    def set_up(self):
        self.etcd.start()
        self.etcd.wait()
        config = self.write_config(self.etcd.client_ports()[0])
        self.nodes = [Node(number, self.options.work, config) for number in NODES]
        self.nodes[0].start()
        wait_for(lambda: self.nodes[0].role() == 'master', 120, 'the first node is not up', 0.5)
        self.nodes[0].query('''CREATE EXTENSION snowflake;
                               CREATE TABLE minted (id snowflake PRIMARY KEY DEFAULT snowflake_next(), note text)''')
        self.nodes[0].query('SELECT snowflake_fleet_create()')
        self.check('no configuration has a node ID', self.nodes[0].query('SHOW snowflake.node_id') == [('-1',)])
        for node in self.nodes[1:]:
            node.start()
        self.wait_healthy(120)
        self.shared[0].endpoint.value = 0
        self.start_clients(Client(number, self) for number in range(CLIENTS))

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
        return not lost and all(node.role() == 'replica' for node in others)

    @staticmethod
    def reinitialize(node):
        """Have a node copied again, as an administrator would.

        Patroni 3.0's primary that was frozen takes its lock back from the one that has it meanwhile.  That one, and the
        other standby, are then on a timeline that the primary does not know.
        """
        try:
            node.ask('reinitialize', {})
            print(f'  node {node.number} follows nobody and is copied again', flush=True)
        except OSError:
            pass                            # it is busy with something else

    def wait_healthy(self, timeout):
        self.mend_at = time.monotonic() + MEND_AFTER_S
        wait_for(self.healthy, timeout, 'the cluster does not get healthy', 0.5)

    def end(self):
        wrong = super().end()
        for node in self.nodes:
            if node.patroni is not None and node.patroni.poll() is None:
                node.signal(signal.SIGCONT)
                node.kill()
        self.etcd.end(signal.SIGKILL)
        return wrong

    # --- faults

    def switchover(self, old):
        old.ask('switchover', {'leader': old.name,
                               'candidate': self.rng.choice([node for node in self.nodes if node is not old]).name})
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
        pids = [member.process.pid for member in self.etcd.members]
        send(signal.SIGSTOP, pids)
        wait_for(lambda: self.primary() is None, 60, 'the primary does not step down', 0.2)
        send(signal.SIGCONT, pids)
        wait_for(self.primary, 90, 'there is no primary again', 0.2)

    def wait_new_primary(self, old):
        wait_for(lambda: any(node is not old and node.role() == 'master' for node in self.nodes), 90,
                 'no other node becomes the primary', 0.2)

    def strike(self, event, fault):
        old = self.primary()
        event['detail'].append(f'node {old.number}')
        fault(old)

    def settle(self, event):
        wait_for(self.primary, 60, 'there is no primary', 0.1)
        event.update(over=time.monotonic_ns(), busy=busy())
        self.wait_for_ids(event, self.shared[0], lambda: self.nodes[0], lambda: ())
        self.wait_healthy(120)
        event['detail'].append(f'now node {self.primary().number}')

    def pause(self):
        self.hold(2, 8)

    def check_more(self, errors):
        frozen = ('lease ended', ) if any(event['kind'] == 'freeze' for event in self.events) else ()
        others = sorted(set(errors).difference(SERVERS_END, frozen))
        self.check(f'no errors but those of a server\'s end: {", ".join(others) or "none"}', not others)


def main():
    return Patroni(Parser(minutes=5, rate=3000).parse_args()).main()


if __name__ == '__main__':
    sys.exit(main())
