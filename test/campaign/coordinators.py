"""The coordinators: PostgreSQL, etcd, ZooKeeper and Consul, on loopback, each member a process and a directory.

A member can be stopped, killed and started again; all of them together can lose their data.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import psycopg2

from servers import Down, query_once, wait_for

READY_S = 90


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(('127.0.0.1', 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Member:
    """One process.  ports: that of clients comes first."""

    def __init__(self, site, name, ports):
        self.name = name
        self.dir = site.path(name)
        self.log = site.path(f'{name}.log')
        self.ports = ports
        self.command = []
        self.env = dict(os.environ, LC_ALL='C', TZ='UTC')
        self.process = None

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        if not self.alive():
            with open(self.log, 'a') as log:
                self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                env=self.env)

    def end(self, number):
        if self.alive():
            self.process.send_signal(number)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def forget(self):
        """It is down, and has no data any more.  Children of a process that was killed may still write for a moment."""
        if os.path.isdir(self.dir):
            os.rename(self.dir, f'{self.dir}.gone')
            while os.path.isdir(f'{self.dir}.gone'):
                shutil.rmtree(f'{self.dir}.gone', ignore_errors=True)


class Coordinator:
    """What all kinds have in common.  how_to_stop: the signal of a clean stop."""

    how_to_stop = signal.SIGTERM
    requests_a_renewal = 1
    fleet = 'fleet'

    def __init__(self, site, count):
        self.site = site
        self.members = [Member(site, f'{self.kind}{i}', free_ports(self.ports_a_member)) for i in range(count)]
        for i, member in enumerate(self.members):
            self.prepare(i, member)

    def client_ports(self):
        return [member.ports[0] for member in self.members]

    def url(self, ports):
        """A server's way to its fleet.  Its ports are those of the proxy."""
        return f'{self.kind}://{",".join(f"127.0.0.1:{port}" for port in ports)}/{self.fleet}'

    def start(self):
        for member in self.members:
            member.start()

    def wait(self):
        """Wait until all members serve."""
        def serve():
            self.start()            # one may have ended because another still held what it needs
            return all(self.serves(member) for member in self.members)
        wait_for(serve, READY_S, f'{self.kind} does not serve, see {self.members[0].log}', 0.2)

    def end(self, number, members=None):
        for member in members or self.members:
            member.end(number)

    def lose_data(self):
        """All members are down: they forget everything."""
        for i, member in enumerate(self.members):
            member.forget()
            self.prepare(i, member)

    @staticmethod
    def http_status(member, path):
        """Of its answer; None: there is none."""
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{member.ports[0]}{path}', timeout=2) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None


class Postgresql(Coordinator):
    """One server."""

    kind = 'postgresql'
    ports_a_member = 1
    how_to_stop = signal.SIGINT
    most_members = 1
    requests_a_renewal = 2          # who it is is asked before, see src/coordinator/pg_session.c
    fleet = 'postgres'              # its database

    def prepare(self, i, member):
        template = self.site.path('coordinator_template')
        if not os.path.isdir(template):
            if self.site.run('initdb', '-D', template, '-U', 'postgres', '-A', 'trust', '-N', '--no-locale',
                             '-E', 'UTF8') != 0:
                raise Down('initdb failed, see tools.log')
        subprocess.run(['cp', '-a', template, member.dir], check=True)
        member.command = [os.path.join(self.site.bindir, 'postgres'), '-D', member.dir, '-p', str(member.ports[0]),
                          '-c', 'listen_addresses=127.0.0.1', '-c', f'unix_socket_directories={member.dir}',
                          '-c', 'shared_buffers=16MB', '-c', 'fsync=off', '-c', 'log_checkpoints=off']

    def url(self, ports):
        return f'postgresql://postgres@127.0.0.1:{ports[0]}/{self.fleet}?sslmode=disable'

    def serves(self, member):
        try:
            return query_once('SELECT true', host='127.0.0.1', port=member.ports[0], dbname='postgres', connect_timeout=2)[0][0]
        except psycopg2.Error:
            return False


class Etcd(Coordinator):
    kind = 'etcd'
    ports_a_member = 2
    most_members = 3

    def prepare(self, i, member):
        os.mkdir(member.dir, 0o700)
        cluster = ','.join(f'{m.name}=http://127.0.0.1:{m.ports[1]}' for m in self.members)
        member.command = [
            'etcd', '--name', member.name, '--data-dir', member.dir,
            '--listen-client-urls', f'http://127.0.0.1:{member.ports[0]}',
            '--advertise-client-urls', f'http://127.0.0.1:{member.ports[0]}',
            '--listen-peer-urls', f'http://127.0.0.1:{member.ports[1]}',
            '--initial-advertise-peer-urls', f'http://127.0.0.1:{member.ports[1]}',
            '--initial-cluster', cluster, '--initial-cluster-state', 'new', '--log-level', 'warn']

    def serves(self, member):
        return self.http_status(member, '/health') == 200


class Zookeeper(Coordinator):
    kind = 'zookeeper'
    ports_a_member = 3
    most_members = 3
    requests_a_renewal = 3          # what is compared is read before, see src/coordinator/zookeeper.c

    def prepare(self, i, member):
        os.mkdir(member.dir, 0o700)
        with open(os.path.join(member.dir, 'myid'), 'w') as f:
            f.write(f'{i + 1}\n')
        lines = [f'tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={member.dir}\nclientPort={member.ports[0]}\n'
                 'clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n']
        if len(self.members) > 1:
            lines += [f'server.{n + 1}=127.0.0.1:{m.ports[1]}:{m.ports[2]}\n' for n, m in enumerate(self.members)]
        with open(os.path.join(member.dir, 'zoo.cfg'), 'w') as f:
            f.writelines(lines)
        # zookeeper.jar names what it needs, but nothing that writes its log, of which there may be one only
        member.command = ['java', '-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp',
                          '/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar',
                          'org.apache.zookeeper.server.quorum.QuorumPeerMain', os.path.join(member.dir, 'zoo.cfg')]

    def serves(self, member):
        try:
            with socket.create_connection(('127.0.0.1', member.ports[0]), 2) as s:
                s.sendall(b'srvr')
                said = b''
                while data := s.recv(4096):
                    said += data
            return b'Mode:' in said
        except OSError:
            return False


class Consul(Coordinator):
    kind = 'consul'
    ports_a_member = 4
    most_members = 3
    requests_a_renewal = 2          # likewise, see src/coordinator/consul.c

    def prepare(self, i, member):
        os.mkdir(member.dir, 0o700)
        http, server, lan, wan = member.ports
        with open(os.path.join(member.dir, 'agent.json'), 'w') as f:
            json.dump({
                'server': True, 'bootstrap_expect': len(self.members), 'node_name': member.name,
                'bind_addr': '127.0.0.1', 'client_addr': '127.0.0.1', 'data_dir': os.path.join(member.dir, 'data'),
                'ports': {'http': http, 'server': server, 'serf_lan': lan, 'serf_wan': wan, 'dns': -1},
                'retry_join': [f'127.0.0.1:{m.ports[2]}' for m in self.members if m is not member],
                'retry_interval': '1s', 'performance': {'raft_multiplier': 1}, 'disable_update_check': True,
                'leave_on_terminate': False, 'skip_leave_on_interrupt': True}, f)
        member.command = [os.environ.get('CONSUL', 'consul'), 'agent', '-config-file',
                          os.path.join(member.dir, 'agent.json')]

    def serves(self, member):
        """There is a leader, and this member's reads reach it; a store without the key answers 404."""
        return self.http_status(member, '/v1/kv/none?consistent') in (200, 404)


KINDS = {kind.kind: kind for kind in (Postgresql, Etcd, Zookeeper, Consul)}
