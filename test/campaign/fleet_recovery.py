"""Faults of a fleet that an administrator has to do something about: a coordinator that forgets.  Where doc/fleet.md says
what to do, the fault does that, and what the page promises is expected.

One of them gives servers a node ID of which the fault knows that nobody else has it: SPECIFIC, which no server takes by
itself.
"""

import datetime
import signal
import time

import psycopg2

import proxy as network
from servers import Down, patience, wait_for

ALL_NODES, SPECIFIC = '0-799', range(900, 1000)
PATIENCE_S = 2.5        # a little more than snowflake.jump_patience
# Until all servers mint where the page says "within seconds", or the clock is beyond all floors: that is 2 s for a
# clock that was set to be believed, an attempt, and the time until the next one.
BOUND_S = 8
CLOCK_BOUND_S = 3
WENT_BACK = 'closed: the coordinator went back in time'


class Recovery:
    """What the campaign over a fleet can do to that; it has the servers."""

    specific = 0

    # --- what is expected

    @staticmethod
    def expect(event, good, what):
        event['expected'].append((what, bool(good)))

    def bounded(self, event, seconds, what):
        """All servers mint, in time."""
        took = self.all_mint(event)
        bound = patience(seconds)
        self.expect(event, took <= bound, f'{what}: all mint again after {took:.1f} s, {bound:.0f} s at most')

    def eventually(self, event, condition, seconds, what):
        """Something comes about, in time."""
        end = time.monotonic() + patience(seconds)
        while not (good := condition()) and time.monotonic() < end:
            time.sleep(0.05)
        self.expect(event, good, what)

    @staticmethod
    def look(server, columns):
        """The status, or None where there is no answer."""
        try:
            row = server.status(columns)
            return row[0] if len(row) == 1 else row
        except psycopg2.Error:
            return None

    # --- what is done

    def all_renew(self, servers):
        """Wait until each has a lease that was renewed or taken since."""
        before = {server: self.look(server, 'leases, lease_renewals') for server in servers}
        wait_for(lambda: all((now := self.look(server, 'leases, lease_renewals')) and now != before[server]
                             for server in servers), patience(2 * self.lease_s + 10), 'a lease is not renewed', 0.1)

    def set_clocks(self, bases):
        """Of servers that run, as far as they are behind these; they believe them when this returns."""
        moved = [server for server, base_ns in bases.items() if server.base_ns < base_ns]
        for server in moved:
            server.set_base(int(bases[server]))
        if moved:
            time.sleep(PATIENCE_S)
        wait_for(lambda: all((now := self.look(server, 'clock_state, gate')) and now[0] != 'coasting' and
                             now[1] == 'open' for server in moved), patience(20), 'a clock is not believed', 0.1)

    def specific_node(self):
        self.specific += 1
        return SPECIFIC[self.specific % len(SPECIFIC)]

    def set_nodes(self, server, nodes):
        server.nodes = str(nodes)
        server.configure()

    def allow_all(self, servers, *kept):
        """They may lease what they may usually, and keep these node IDs."""
        for server in servers:
            self.set_nodes(server, ','.join([ALL_NODES, *map(str, kept)]))
            server.reload()

    def set_network(self, slots, mode):
        for slot in slots:
            self.proxy.set_mode(slot, mode)

    def two_alone(self):
        """Two members with whom no guest shares its way to the coordinator, and two others."""
        shared = {guest.member for guest in self.guests()}
        alone = self.rng.sample([server for server in self.members() if server.member not in shared], 2)
        return alone, self.rng.sample([server for server in self.members() if server not in alone], 2)

    def recover(self, event, server, floor):
        """As often as the fleet's record is changed by others meanwhile."""
        end = time.monotonic() + patience(60)
        while True:
            try:
                server.query('SELECT snowflake_fleet_recover(%s)', (floor, ), dbname=server.database)
                return
            except psycopg2.Error as error:
                if time.monotonic() > end:
                    raise Down(f'snowflake_fleet_recover() is refused: {error}') from error
                event['detail'].append('again')
                time.sleep(0.5)

    def found_again(self, event, server):
        """The floor of the fleet is above all that was granted, which all servers know together.

        Clocks that are behind it would mint nothing for as long as they are, so they are set right.
        """
        for each in self.present():
            self.note_granted(each)
        self.recover(event, server, self.granted)
        self.era_ns = max(self.era_ns, int((self.granted - datetime.datetime.now(datetime.timezone.utc)).total_seconds() * 1e9) + 10 ** 8)
        for each in self.present():
            if each.base_ns < self.era_ns:
                each.set_base(self.era_ns + self.some_step())

    # --- kinds of fault

    def loses_data(self, event):
        """All members of the coordinator forget everything."""
        self.coordinator.end(signal.SIGKILL)
        self.coordinator.lose_data()
        self.hold_leases(0, 1.5)
        self.back()
        self.hold_leases(0, 1)
        self.found_again(event, self.any_member(event))
        self.bounded(event, BOUND_S, 'the fleet is founded again')

    def wait_for_node(self, server, node):
        wait_for(lambda: self.node_of(server) == node, patience(20), 'a new node ID is not leased')

    def stop_to_take(self, server, node):
        """It takes that node ID when it is started."""
        self.note_granted(server)
        server.stop('kill')
        self.set_nodes(server, node)

    def take_specific(self, server, node):
        self.stop_to_take(server, node)
        self.start(server)

    def restored(self, event):
        """The coordinator goes back behind what it granted to two servers.  Both close their gates and mark the fleet;
        from then on two others, for whom it has these node IDs free, are granted nothing.
        """
        others, holders = self.two_alone()
        event['detail'].append('holders {0.number} and {1.number}, others {2.number} and {3.number}'
                               .format(*holders, *others))
        # what the others would be granted would begin where the holders have minted
        behind_ns = int(self.lease_s / 2 * 1e9)
        base_ns = max(*(server.base_ns for server in holders), *(server.base_ns + behind_ns for server in others))
        self.set_clocks({server: base_ns for server in holders})
        self.coordinator.copy()
        node = self.specific_node()
        self.take_specific(holders[0], node)
        self.wait_for_node(holders[0], node)
        self.allow_all(holders[:1], node)
        self.all_renew(holders)
        self.set_network([server.member for server in others], network.HOLE)
        for server, holder in zip(others, holders):
            self.stop_to_take(server, self.node_of(holder))
            server.set_base(base_ns - behind_ns)
            self.start(server)
        leases = {server: self.look(server, 'leases') for server in holders}
        self.coordinator.restore()

        def has_noticed(server):
            now = self.look(server, 'gate, leases')
            return now and (now[0] == WENT_BACK or now[1] != leases[server])
        for server in holders:
            self.eventually(event, lambda: has_noticed(server), self.lease_s + 5,
                            'a server finds its own lease missing')
            self.expect(event, self.look(server, 'gate') == WENT_BACK, 'it closes its gate')
        self.set_network([server.member for server in others], network.PASS)
        self.hold_leases(0.4, 0.8)
        for server in others:
            self.expect(event, self.look(server, 'lease_until') is None, 'a fleet that is marked grants nothing')
        self.allow_all([*others, holders[0]])
        self.found_again(event, self.rng.choice(holders))
        self.bounded(event, BOUND_S, 'the fleet is founded again')
