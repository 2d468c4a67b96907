"""The campaign over a fleet: servers that lease their node IDs from one coordinator.

Servers.  Five have a place of their own for the whole campaign.  Up to two guests are beside them: copies and promoted
standbys, with the configuration of the server they come from, so also with its way to the coordinator.

Clocks.  A server's base stays within about an hour of the era's begin.  Where a fleet is founded again another era
begins: the floor is above all that was granted, so clocks that are behind it are set right.

Where doc/fleet.md says what an administrator has to do about a coordinator that forgets, the fault does that.
"""

import contextlib
import datetime
import glob
import math
import os
import signal
import subprocess
import sys
import time

import psycopg2

import clients
import proxy as network
from campaign import Campaign, Parser
from coordinators import KINDS
from servers import Backup, Down, Server, Site, busy, children, patience, send

MEMBERS, GUESTS = 5, 2
HOUR_NS = 3600 * 10 ** 9
STOPS = ('kill', 'kill', 'immediate', 'fast')
DATABASE = 'fleet'
STEADY_LEASES = 4
LEASE_S = 6                             # on a busy machine as much longer as it is busy, up to
LONGEST_LEASE_S = 30
# Until all servers mint where the page says "within seconds": that is 2 s for a clock that was set to be believed, an
# attempt, and the time until the next one.
BOUND_S = 8
ALL_NODES = '0-799'


class Client(clients.Client):
    """One that stays with a place of the fleet, whichever server has it."""

    def connect(self, endpoint):
        self.place = endpoint
        return psycopg2.connect(host=f'{self.work}/s{endpoint}', port=self.shared.port.value, user='postgres', dbname=DATABASE)


class FleetServer(Server):
    database = DATABASE

    def __init__(self, site, member):
        super().__init__(site, 0)
        self.member = member                # whose configuration it has
        self.port = 6000 + member
        self.leases = True
        self.nodes = ALL_NODES              # that it may lease

    def extension_settings(self):
        return {
            'shared_preload_libraries': 'snowflake', 'archive_mode': 'off', 'snowflake.jump_patience': '2s',
            'snowflake.reservation': '1s',      # so that a server that dies is there again before its lease ends
            'snowflake.node_source': self.site.url(self) if self.leases else 'setting',
            'snowflake.lease': f'{self.site.lease_s}s', 'snowflake.lease_nodes': self.nodes,
        }

    def status(self, columns):
        return self.query(f'SELECT {columns} FROM snowflake_status, snowflake_stats', dbname=DATABASE)[0]

    def processes(self):
        pid = self.postmaster()
        return [pid, *children(pid)] if pid else []

    def lessees(self):
        """Its lessee's pid, if there is one; as that has no database it is not in pg_stat_activity."""
        for pid in self.processes():
            with contextlib.suppress(OSError), open(f'/proc/{pid}/cmdline', 'rb') as f:
                if b'snowflake lessee' in f.read():
                    return [pid]
        return []

    def copy_from(self, directory):
        """Take a data directory of another server, as it lies there, for one's own."""
        subprocess.run(['cp', '-a', directory, self.data], check=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.data, 'postmaster.pid'))


class Fleet(Campaign):
    longest_pause_s = 1.5
    place = 'server {}'.format

    def __init__(self, options):
        super().__init__(options)
        kind = KINDS[options.coordinator]
        self.name = f'fleet {options.coordinator}'
        self.lease_s = options.lease
        # most of a fault's time is that leases end
        self.least = 3 * min(1, LEASE_S / options.lease), 10000
        if not glob.glob(f'{options.work}/inst/**/snowflake_{options.coordinator}.so', recursive=True):
            raise Down(f'the module of {options.coordinator} was not built here')
        self.site = Site(options)
        self.site.lease_s = options.lease
        self.site.url = self.url
        self.coordinator = kind(self.site, kind.most_members)
        self.proxy = network.Proxy(self.context, kind.kind, MEMBERS, self.coordinator.client_ports())
        self.ports = [self.proxy.ports(slot) for slot in range(MEMBERS)]
        # of clients; the first MEMBERS are the members'
        self.shared = [clients.Shared(self.context, MEMBERS + GUESTS) for _ in range(MEMBERS + GUESTS)]
        self.servers = [None] * (MEMBERS + GUESTS)
        self.era_ns = 0
        self.granted = None                 # up to when servers had leases that are gone

    def url(self, server):
        return self.coordinator.url(self.ports[server.member])

    def line_of(self, place):
        return place

    def wait_of(self, event, wait):
        return event.get('until_all_mint')

    def kinds(self):
        # Several of a kind stand for a heavier weight.
        kinds = [
            *[('kill', lambda e: self.restart(e, 'kill'))] * 2, ('stop immediate', lambda e: self.restart(e, 'immediate')),
            ('stop fast', lambda e: self.restart(e, 'fast')), ('all at once', self.all_at_once),
            *[('pause', self.pause_server)] * 2,
            ('kill lessee', lambda e: self.end_lessee(e, signal.SIGKILL, 1)),
            ('terminate lessee', lambda e: self.end_lessee(e, signal.SIGTERM, 3)),
            ('clock forward', self.clock_forward), ('clock back', self.clock_back), ('clock jitter', self.clock_jitter),
            ('clock back while down', self.clock_back_while_down),
            *[('network of some', self.network_of_some)] * 3, *[('cut off', self.cut_off)] * 2,
            ('kill and network', self.kill_and_network),
            *[('copy of a running server', lambda e: self.copy(e, False))] * 2,
            ('copy of a crashed server', lambda e: self.copy(e, True)),
            ('promotion with the old primary alive', self.promote),
            *[('coordinator stopped', self.coordinator_stopped)] * 2,
            ('coordinator lost its data', self.loses_data)]
        if len(self.coordinator.members) > 1:
            kinds += [('one coordinator lost', self.lose_one)]
        return kinds

    # --- set-up

    def set_up(self):
        self.proxy.start()
        self.start_clients(Client(i, self.options, shared, len(self.shared)) for i, shared in enumerate(self.shared))
        self.coordinator.start()
        self.coordinator.wait()
        self.rng.seed(f'{self.options.seed}/clocks')
        first = FleetServer(self.site, 0)
        first.initdb()
        first.leases = False        # the others start from its data, and they are no copies of a holder
        first.configure()
        first.start()
        first.query(f'CREATE DATABASE {DATABASE}')
        first.query('CREATE EXTENSION snowflake', dbname=DATABASE)
        first.query('CREATE TABLE minted (id snowflake PRIMARY KEY DEFAULT snowflake_next(), note text)',
                    dbname=DATABASE)
        first.stop('fast')
        first.leases = True
        first.configure()
        self.servers[0] = first
        for i in range(1, MEMBERS):
            server = self.servers[i] = FleetServer(self.site, i)
            server.copy_from(first.data)
            server.configure()
            # some nearly agree, some are off by up to an hour
            server.set_base(self.some_step())
        for server in self.members():
            server.start()
        # nothing is granted below the clock of the founder: one that nobody is behind
        first.query('SELECT snowflake_fleet_create()', dbname=DATABASE)
        for i in range(MEMBERS):
            self.open(i)
        self.all_mint(self.event('start'))
        self.events.clear()
        self.steady()

    def steady(self):
        """Requests that a server sends while nothing is wrong."""
        time.sleep(self.lease_s)
        before = list(self.proxy.requests)
        leases = [server.status('leases')[0] for server in self.members()]
        time.sleep(STEADY_LEASES * self.lease_s)
        a_lease = [(after - b) / STEADY_LEASES for after, b in zip(self.proxy.requests, before)]
        taken = [server.status('leases')[0] for server in self.members()] != leases
        most = 2 * self.coordinator.requests_a_renewal
        # one renewal more falls into the time now and then
        bound = most + self.coordinator.requests_a_renewal / STEADY_LEASES
        self.check(f'in the steady state {sum(a_lease) / len(a_lease):.2f} requests a lease and server, at most {most}'
                   f'{" (not judged: a lease was taken meanwhile)" if taken else ""}', taken or max(a_lease) <= bound)

    def end(self):
        wrong = super().end()
        self.coordinator.end(signal.SIGKILL)
        self.proxy.stop()
        return wrong

    def check_more(self, errors):
        bounded = [event for event in self.events if event['bound']]
        late = [event for event in bounded if (event['until_all_mint'] or 0) > event['bound']]
        for event in late:
            print(f'  {event["kind"]} ({", ".join(event["detail"])}): all mint after {event["until_all_mint"]:.1f} s')
        self.check(f'{len(bounded)} times a fleet is founded again, {len(late)} times not all mint within seconds', not late)

    def members(self):
        return self.servers[:MEMBERS]

    def present(self):
        return [server for server in self.servers if server]

    def open(self, place):
        server = self.servers[place]
        self.shared[place].port.value = server.port
        self.shared[place].endpoint.value = server.number

    def close(self, place):
        self.shared[place].endpoint.value = -1

    # --- the campaign

    def event(self, name):
        event = super().event(name)
        event.update(until_all_mint=None, bound=None)
        return event

    def settle(self, event):
        """All servers are up, reach the coordinator, and mint."""
        for slot in range(MEMBERS):
            self.proxy.set_mode(slot, network.PASS)
        self.all_mint(event)
        for server in self.present():
            self.truncate(server, DATABASE)

    def all_mint(self, event):
        """Wait until every server has served a call that began since; note how long that took, in s."""
        began = time.monotonic()
        event.update(over=time.monotonic_ns(), busy=busy())
        for place, server in enumerate(self.servers):
            if server:
                self.wait_for_ids(event, self.shared[place], lambda: server, self.present)
        event['until_all_mint'] = max(event['until_all_mint'] or 0, time.monotonic() - began)

    def hold_leases(self, low, high):
        self.hold(low * self.lease_s, high * self.lease_s)

    def start(self, server):
        """Start it; a postmaster that was killed may be in the way until its new parent has taken note."""
        end = time.monotonic() + 20
        while not server.start(must=False) and not server.alive() and time.monotonic() < end:
            time.sleep(0.05)

    def any_of(self, event, servers):
        server = self.rng.choice(servers)
        event['detail'].append(f'server {server.number}')
        return server

    def any_server(self, event):
        return self.any_of(event, self.present())

    def any_member(self, event):
        return self.any_of(event, self.members())

    # --- kinds of fault: processes

    def restart(self, event, how):
        server = self.any_server(event)
        server.stop(how)
        if self.rng.random() < 0.3:
            self.hold_leases(0.2, 1.5)
        self.start(server)

    def all_at_once(self, event):
        how = self.rng.choice(STOPS)
        event['detail'].append(how)
        for server in self.present():
            server.stop(how)
        for server in self.present():
            self.start(server)

    def node_of(self, server):
        try:
            return server.status('node')[0]
        except psycopg2.Error:
            return None

    def overtake(self, event, server, node):
        """While a server is out of reach: half of the time another, whose clock is beyond the lease, takes its node ID.

        The clocks are that near to each other that the one gets to where the other began.
        """
        other = self.rng.choice([s for s in self.present() if s is not server])
        ahead_ns = int(self.rng.uniform(1.1, 1.8) * self.lease_s * 1e9)
        if node is None or self.rng.random() < 0.5:
            self.hold_leases(1, 2)
            return
        event['detail'].append(f'{other.number} is to take node ID {node}')
        other.stop('kill')
        step_ns = server.base_ns + ahead_ns - other.base_ns
        if step_ns > 0:
            self.keep_step(other, step_ns)
        else:
            self.keep_step(server, -step_ns)
        other.nodes = str(node)
        other.configure()
        self.start(other)
        self.hold_leases(1.5, 2.5)
        other.nodes = ALL_NODES
        other.configure()
        other.reload()

    def pause_server(self, event):
        """Stop all processes for longer than the lease, so that its node ID may be somebody else's when they go on."""
        server = self.any_server(event)
        node = self.node_of(server)
        with server.stopped(server.processes()):
            self.overtake(event, server, node)

    def end_lessee(self, event, number, most):
        server = self.any_server(event)
        ended = 0
        for _ in range(self.rng.randint(1, most)):
            pids = server.lessees()
            send(number, pids)
            ended += len(pids)
            self.hold(0.1, 1.5)
        event['detail'].append(f'{ended} times')
        return ended > 0

    # --- kinds of fault: clocks

    def keep_step(self, server, step_ns):
        """A step forward, as far as the era goes."""
        server.set_base(max(server.base_ns, min(server.base_ns + step_ns, self.era_ns + HOUR_NS)))

    def clock_back_while_down(self, event):
        server, step = self.stepped(event)
        server.stop(self.rng.choice(STOPS))
        server.step_clock(server.base_ns - step)
        self.start(server)
        self.hold(0.3, 3)
        server.set_base(server.base_ns)

    # --- kinds of fault: the network

    def trouble(self, event, slots):
        mode = self.rng.randrange(network.CUT, network.LATE + 1)
        delay = self.rng.uniform(0.05, 0.5)
        for slot in slots:
            self.proxy.set_mode(slot, mode, delay)
        event['detail'].append(network.NAMES[mode])

    def cut_off(self, event):
        """Longer than the lease, so that its node ID may be somebody else's meanwhile."""
        server = self.any_member(event)
        node = self.node_of(server)
        self.proxy.set_mode(server.member, self.rng.choice((network.CUT, network.HOLE)))
        self.overtake(event, server, node)

    def network_of_some(self, event):
        slots = self.rng.sample(range(MEMBERS), self.rng.choice((1, 1, *range(2, MEMBERS + 1))))
        event['detail'].append(f'{len(slots)} servers')
        self.trouble(event, slots)
        self.hold_leases(0.3, 2)

    def kill_and_network(self, event):
        """A server that starts has its first writes lost, or late."""
        server = self.any_server(event)
        server.stop('kill')
        self.trouble(event, [server.member])
        self.start(server)
        self.hold_leases(0.3, 1.5)

    # --- kinds of fault: others with the same data

    def guest_place(self, event):
        """A place for one more; a guest that is there leaves, or replaces the member that it comes from."""
        for place in range(MEMBERS, MEMBERS + GUESTS):
            if self.servers[place] is None:
                return place
        place = self.rng.randrange(MEMBERS, MEMBERS + GUESTS)
        guest = self.servers[place]
        member = self.servers[guest.member]
        if self.rng.random() < 0.5:
            event['detail'].append(f'{guest.number} replaces {member.number}')
            self.retire(guest.member)
            self.close(place)
            self.servers[place] = None
            self.servers[guest.member] = guest
            self.open(guest.member)
        else:
            event['detail'].append(f'{guest.number} leaves')
            self.retire(place)
        return place

    def retire(self, place):
        server = self.servers[place]
        self.note_granted(server)
        self.close(place)
        server.remove()
        self.servers[place] = None

    def welcome(self, event, guest, origin, place):
        """Its clock agrees, nearly, or is off either way."""
        if self.rng.random() < 0.7:
            guest.set_base(min(origin.base_ns + self.rng.choice((0, self.some_step())), self.era_ns + HOUR_NS))
        else:
            guest.set_base(max(origin.base_ns - self.some_step(), self.era_ns))
        event['detail'].append(f'server {guest.number} is {"behind" if guest.base_ns < origin.base_ns else "there"}')
        self.servers[place] = guest

    def copy(self, event, has_crashed):
        """Both start from what a crash left, or one beside the other."""
        place = self.guest_place(event)
        origin = self.any_member(event)
        guest = FleetServer(self.site, origin.member)
        if has_crashed:
            origin.stop('kill')
            guest.copy_from(origin.data)
        else:
            Backup(origin).copy_to(guest)
        guest.configure()
        self.welcome(event, guest, origin, place)
        for server in self.rng.sample((origin, guest), 2):
            if not server.alive():
                self.start(server)
        self.open(place)

    def promote(self, event):
        """An asynchronous standby, whose primary lives on."""
        place = self.guest_place(event)
        origin = self.any_member(event)
        guest = FleetServer(self.site, origin.member)
        Backup(origin).copy_to(guest)
        guest.configure(follow=origin)
        self.welcome(event, guest, origin, place)
        guest.start()
        self.hold_leases(0, 1)
        guest.promote()
        self.open(place)

    # --- kinds of fault: the coordinator

    def coordinator_stopped(self, event):
        """Or killed: all members, or as many as it cannot do without."""
        members = self.coordinator.members
        members = self.rng.sample(members, self.rng.choice((len(members), len(members) // 2 + 1)))
        number = self.rng.choice((self.coordinator.how_to_stop, signal.SIGKILL))
        event['detail'].append(f'{number.name} of {len(members)}')
        self.coordinator.end(number, members)
        self.hold_leases(0, 2)
        self.back()

    def back(self):
        self.coordinator.start()
        self.coordinator.wait()

    def lose_one(self, event):
        member = self.rng.choice(self.coordinator.members)
        event['detail'].append(member.name)
        self.coordinator.end(signal.SIGKILL, [member])
        # nobody may notice: everybody renews, and one that crashes gets another
        server = self.any_server(event)
        server.stop('kill')
        self.start(server)
        self.hold_leases(1, 3)
        self.all_mint(event)
        self.back()

    def loses_data(self, event):
        """All members forget everything, and the fleet is founded again.

        Its floor is above all that was granted, which all servers know together.  Clocks that are behind it would mint
        nothing for as long as they are, so they are set right.
        """
        self.coordinator.end(signal.SIGKILL)
        self.coordinator.lose_data()
        self.hold_leases(0, 1.5)
        self.back()
        self.hold_leases(0, 1)
        for each in self.present():
            self.note_granted(each)
        server = self.any_member(event)
        end = time.monotonic() + patience(60)
        while True:
            try:
                server.query('SELECT snowflake_fleet_recover(%s)', (self.granted, ), dbname=DATABASE)
                break
            except psycopg2.Error as error:
                # the fleet's record is changed by others meanwhile
                if time.monotonic() > end:
                    raise Down(f'snowflake_fleet_recover() is refused: {error}') from error
                event['detail'].append('again')
                time.sleep(0.5)
        ahead = (self.granted - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        self.era_ns = max(self.era_ns, int(ahead * 1e9) + 10 ** 8)
        for each in self.present():
            if each.base_ns < self.era_ns:
                each.set_base(self.era_ns + self.some_step())
        event['bound'] = patience(BOUND_S)

    def note_granted(self, server):
        """Remember up to when a server has a lease."""
        try:
            until = server.status('lease_until')[0]
        except psycopg2.Error:
            until = None
        if until is None:
            now = datetime.datetime.now(datetime.timezone.utc)
            until = now + datetime.timedelta(seconds=server.base_ns / 1e9 + self.lease_s)
        if self.granted is None or until > self.granted:
            self.granted = until


def main():
    parser = Parser(minutes=2, rate=4000)
    parser.add_argument('--coordinator', choices=sorted(KINDS), default='etcd')
    parser.add_argument('--lease', type=int, default=min(math.ceil(LEASE_S * busy()), LONGEST_LEASE_S), help='in seconds')
    try:
        campaign = Fleet(parser.parse_args())
    except Down as error:
        print(f'fleet: {error}\n0 passed, 1 failed')
        return 1
    return campaign.main()


if __name__ == '__main__':
    sys.exit(main())
