"""Faults of a fleet that an administrator has to do something about: a coordinator that forgets, or is split; a clock far
ahead.  Where doc/fleet.md says what to do, the fault does that, and what the page promises is expected.

Some of them give servers a node ID of which the fault knows that nobody else has it: SPECIFIC, which no server takes by
itself.
"""

import datetime
import signal
import time

import psycopg2

import proxy as network
from servers import Backup, Down, patience, wait_for

ALL_NODES, SPECIFIC = '0-799', range(900, 1000)
PATIENCE_S = 2.5        # a little more than snowflake.jump_patience
FAR_NS = 365 * 24 * 3600 * 10 ** 9
FAR = datetime.timedelta(days=300)
# Until all servers mint where the page says "within seconds", or the clock is beyond all floors: that is 2 s for a
# clock that was set to be believed, an attempt, and the time until the next one.
BOUND_S = 8
CLOCK_BOUND_S = 3
WENT_BACK = 'closed: the coordinator went back in time'


def utc_now():
    return datetime.datetime.now(datetime.timezone.utc)


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

    def refused(self, event, server, sqlstate, sql, *args):
        try:
            server.query(sql, args, dbname=server.database)
            code = None
        except psycopg2.Error as error:
            code = error.pgcode
        self.expect(event, code == sqlstate, f'{sql} is refused with {sqlstate}: {code}')

    @staticmethod
    def look(server, columns):
        """The status, or None where there is no answer."""
        try:
            row = server.status(columns)
            return row[0] if len(row) == 1 else row
        except psycopg2.Error:
            return None

    @staticmethod
    def fleet_row(server, columns):
        try:
            return server.query(f'SELECT {columns} FROM snowflake_fleet() WHERE node IS NULL',
                                dbname=server.database)[0]
        except (psycopg2.Error, IndexError):
            return (None, ) * (columns.count(',') + 1)

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

    def apply(self, servers):
        """Their settings are in force."""
        for server in servers:
            server.configure()
            server.reload()
        for server in servers:
            wait_for(lambda: self.shown(server) == server.url(), patience(20), 'the settings are not in force')

    @staticmethod
    def shown(server):
        try:
            return server.query('SHOW snowflake.node_source')[0][0]
        except psycopg2.Error:
            return None

    def set_network(self, slots, mode):
        for slot in slots:
            self.proxy.set_mode(slot, mode)

    def two_alone(self):
        """Two members with whom no guest shares its way to the coordinator, and two others."""
        shared = {guest.member for guest in self.guests()}
        alone = self.rng.sample([server for server in self.members() if server.member not in shared], 2)
        return alone, self.rng.sample([server for server in self.members() if server not in alone], 2)

    def recover(self, event, server, floor, gone=False):
        """As often as the fleet's record is changed by others meanwhile."""
        end = time.monotonic() + patience(60)
        while True:
            try:
                server.query('SELECT snowflake_fleet_recover(%s, %s)', (floor, gone), dbname=server.database)
                return
            except psycopg2.Error as error:
                if time.monotonic() > end:
                    raise Down(f'snowflake_fleet_recover() is refused: {error}') from error
                event['detail'].append('again')
                time.sleep(0.5)

    def found_again(self, event, server, gone=False):
        """The floor of the fleet is above all that was granted, which all servers know together.

        Clocks that are behind it would mint nothing for as long as they are, so they are set right.
        """
        for each in self.present():
            self.note_granted(each)
        self.recover(event, server, self.granted, gone)
        self.era_ns = max(self.era_ns, int((self.granted - utc_now()).total_seconds() * 1e9) + 10 ** 8)
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

    def two_at_one_clock(self):
        """A holder of a node ID that nobody else has, and another server; and all clocks agree, so that what both mint
        with it is the same.
        """
        holder, other = self.rng.sample(self.members(), 2)
        self.set_clocks({server: max(each.base_ns for each in self.present()) for server in self.present()})
        return holder, other

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

    def long_lease(self, event):
        """A lease is of before the setting was shortened.  The coordinator loses its data, and another server, which
        wants the same node ID, recovers the fleet with the default floor.
        """
        holder, other = self.two_at_one_clock()
        event['detail'].append(f'holder {holder.number}, other {other.number}')
        node = self.specific_node()
        self.take_specific(holder, node)
        self.wait_for_node(holder, node)
        holder.lease_s = 10 * self.lease_s
        self.apply([holder])
        far = datetime.timedelta(seconds=8 * self.lease_s)
        wait_for(lambda: self.look(holder, 'lease_until - now()') > far, patience(20), 'a lease is not lengthened', 0.1)
        holder.lease_s = None
        self.apply([holder])
        self.take_specific(other, node)
        self.coordinator.end(signal.SIGKILL)
        self.coordinator.lose_data()
        self.back()
        began = time.monotonic()
        # what the default is, but for a clock that the coordinator's is far behind of
        other.query('SELECT snowflake_fleet_recover(now() + %s)', (datetime.timedelta(seconds=self.lease_s), ),
                    dbname=other.database)
        self.eventually(event, lambda: (gate := self.look(holder, 'gate')) == WENT_BACK or
                        time.monotonic() > began + 2 * self.lease_s, 2 * self.lease_s + 5, 'a holder looks')
        self.expect(event, self.look(holder, 'gate') == WENT_BACK, 'a holder whose lease reaches far ahead notices')
        event['detail'].append(f'after {time.monotonic() - began:.1f} s')
        self.expect(event, self.look(other, 'lease_until') is None, 'before its node ID is granted again')
        self.hold_leases(0.5, 1)
        self.allow_all([holder, other])
        self.found_again(event, other)
        self.bounded(event, BOUND_S, 'the fleet is founded again')

    def ahead(self, event):
        """A server is ahead of the clock, and is stopped cleanly and started; then it goes back to the clock."""
        server = self.any_member(event)
        self.close(self.place_of(server))
        server.query("SELECT snowflake_advance(snowflake_upper_bound(now() + interval '5 min'), true), snowflake_next()",
                     dbname=server.database)
        node = self.node_of(server)
        for _ in range(3):
            self.note_granted(server)
            server.stop('fast')
            self.start(server)
            wait_for(lambda: self.look(server, 'gate') == 'open', patience(20), 'the gate does not open', 0.1)
            server.query('SELECT snowflake_next()', dbname=server.database)
            self.expect(event, self.node_of(server) == node, f'it keeps node ID {node}: {self.node_of(server)}')
        self.note_granted(server)
        server.query('SELECT snowflake_restart_at_clock(%s)', (node, ), dbname=server.database)
        near = server.query("SELECT snowflake_timestamp(snowflake_next()) < now() + interval '20 s'",
                            dbname=server.database)[0][0]
        self.expect(event, near and self.node_of(server) != node, 'it goes back to the clock, with another node ID')

        # the order is given up, so for the verdict it is another server
        self.note_granted(server)
        server.stop(self.rng.choice(('fast', 'kill')))
        self.replace_by_copy(event, server)
        self.bounded(event, BOUND_S, 'a server went back to the clock')

    def replace_by_copy(self, event, server):
        place = self.place_of(server)
        successor = self.new_server(server.member)
        successor.copy_from(server.data)
        successor.configure()
        successor.set_base(server.base_ns)
        server.remove()
        event['detail'].append(f'server {successor.number} takes its place')
        self.servers[place] = successor
        self.start_guest(successor, place)

    def loses_key(self, event):
        """The table of records is restored without its key, and two servers want one node ID."""
        two = self.two_at_one_clock()
        event['detail'].append(f'servers {two[0].number} and {two[1].number}')
        node = self.specific_node()
        for server in two:
            self.stop_to_take(server, node)
        fleet = self.coordinator.fleet
        self.coordinator.drop_key(fleet)
        with self.coordinator.writes_wait(fleet, 2):
            for server in two:
                self.start(server)
        self.hold_leases(0.5, 1)
        for server in two:
            self.expect(event, self.look(server, 'lease_until') is None, 'without its key the table has nothing granted')
        self.coordinator.add_key(fleet)
        self.allow_all(two)
        self.bounded(event, BOUND_S, 'the table has its key again')

    def fails_over(self, event):
        """A standby of the coordinator takes over that lacks a grant.  Another server wants the same node ID, while its
        holder does not hear of anything.
        """
        self.coordinator.add_standby()
        for server in self.present():
            server.order = self.rng.sample((0, 1), 2)
        self.apply(self.present())
        self.all_renew(self.present())
        holder, other = self.two_at_one_clock()
        event['detail'].append(f'holder {holder.number}, other {other.number}')
        self.all_renew(self.present())
        # the others, whose renewals would be lost, would mark the fleet
        quiet = {server.member for server in self.present()} - {holder.member, other.member}
        self.set_network(quiet, network.HOLE)
        self.coordinator.other().end(signal.SIGKILL)
        node = self.specific_node()
        self.take_specific(holder, node)
        self.wait_for_node(holder, node)
        self.note_granted(holder)
        self.take_specific(other, node)
        self.set_network([holder.member], network.HOLE)
        self.coordinator.fail_over()
        began = time.monotonic()
        self.eventually(event, lambda: 'another timeline' in (self.look(other, 'advice') or '') or
                        self.look(other, 'lease_until'), self.lease_s + 5, 'a server says that it waits')
        self.hold_leases(0.1, 0.2)
        self.expect(event, self.look(other, 'lease_until') is None,
                    'a grant that was lost is not granted again before its holder can have noticed')
        self.set_network([holder.member, *quiet], network.PASS)
        self.eventually(event, lambda: self.look(holder, 'gate') == WENT_BACK, self.lease_s, 'a holder notices')
        event['detail'].append(f'after {time.monotonic() - began:.1f} s')
        self.expect(event, self.look(other, 'lease_until') is None, 'and marks the fleet')
        self.hold_leases(0.5, 1)
        self.allow_all([holder, other])
        self.found_again(event, other)
        self.bounded(event, BOUND_S, 'the fleet is founded again')
        for server in self.present():
            server.order = None
        self.apply(self.present())

    def far_clock(self, event):
        """A server leases a node ID a year ahead.  The coordinator goes back to before that, so the server closes its
        gate and reports its lease; and it is stopped for good.
        """
        far = self.any_member(event)
        witness = self.rng.choice([server for server in self.members() if server is not far])
        self.coordinator.copy()
        far.stop('kill')
        far.set_base(FAR_NS)
        self.start(far)
        wait_for(lambda: (until := self.look(far, 'lease_until')) and until > utc_now() + FAR, patience(40),
                 'a clock that is a year ahead leases nothing', 0.1)
        self.hold(0.3, 1)
        self.coordinator.restore()
        self.eventually(event, lambda: (until := self.fleet_row(witness, 'leased_until')[0]) and
                        until > utc_now() + FAR, self.lease_s + 10, 'a server that closes its gate reports its lease')
        place = self.place_of(far)
        reported = self.fleet_row(witness, 'leased_until')[0]
        self.close(place)
        far.remove()
        self.servers[place] = None

        for server in self.present():
            self.note_granted(server)
        self.refused(event, witness, '22023', 'SELECT snowflake_fleet_recover(%s)', self.granted)
        self.refused(event, witness, '55000', 'SELECT snowflake_fleet_recover()')
        if reported and self.rng.random() < 0.5:
            event['detail'].append('recovered above its lease first')
            self.recover(event, witness, reported + datetime.timedelta(seconds=1))
            self.eventually(event, lambda: 'waits for the floor' in (self.look(witness, 'advice') or ''),
                            self.lease_s + 10, 'a server says that it waits for the floor')
            self.refused(event, witness, '22023', 'SELECT snowflake_fleet_recover(%s)', self.granted)
            self.refused(event, witness, '55000', 'SELECT snowflake_fleet_recover()')
        self.found_again(event, witness, gone=True)
        self.bounded(event, BOUND_S, 'the others mint')

        successor = self.new_server(far.member)
        Backup(witness).copy_to(successor)
        successor.configure()
        successor.set_base(witness.base_ns)
        event['detail'].append(f'server {successor.number} takes its place')
        self.servers[place] = successor
        self.start_guest(successor, place)

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

    def split(self, event):
        """A standby of the coordinator is promoted, and the primary goes on.  All servers know both, in one order or
        the other; two that know them in different orders want one node ID.
        """
        self.coordinator.add_standby()
        for i, server in enumerate(self.rng.sample(self.members(), len(self.members()))):
            server.order = (0, 1) if i % 2 else (1, 0)
        for server in self.guests():
            server.order = self.rng.sample((0, 1), 2)
        self.apply(self.present())
        self.all_renew(self.present())
        two = [self.rng.choice([server for server in self.members() if server.order[0] == i]) for i in (0, 1)]
        event['detail'].append(f'servers {two[0].number} and {two[1].number}')
        node = self.specific_node()
        self.set_clocks({server: max(each.base_ns for each in two) for server in two})
        for server in two:
            self.stop_to_take(server, node)
        slots = {server.member for server in self.present()}
        self.set_network(slots, network.HOLE)
        old = self.coordinator.members[0]
        self.coordinator.split()
        new = self.coordinator.members[0]
        self.set_network(slots, network.PASS)
        for server in two:
            self.start(server)
        for server in two:
            self.eventually(event, lambda: 'two servers of the coordinator accept writes' in
                            (self.look(server, 'advice') or ''), 15, 'a server says that two can be written')
        self.hold_leases(0.3, 1.2)
        for server in two:
            self.expect(event, self.look(server, 'lease_until') is None, 'of two that can be written, neither is used')
        self.allow_all(two)
        old.end(signal.SIGKILL)
        self.bounded(event, BOUND_S + self.lease_s / 2, 'the one that was replaced is stopped')
        if self.rng.random() < 0.5:
            event['detail'].append('the one before is back, alone')
            self.all_renew(self.present())      # all have seen the new timeline
            new.end(signal.SIGKILL)
            old.start()
            for server in self.present():
                self.eventually(event, lambda: 'was replaced by another' in (self.look(server, 'advice') or ''),
                                self.lease_s + 10, 'a coordinator that was replaced grants nothing')
            old.end(signal.SIGKILL)
            self.back()
            self.bounded(event, BOUND_S, 'the right one is back')
        for server in self.present():
            server.order = None
        self.apply(self.present())
