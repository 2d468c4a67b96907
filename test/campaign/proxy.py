"""The network between each server and the coordinator: a TCP proxy, in a process of its own.

Every (server, member of the coordinator) has a port of its own.  What happens to a server's traffic is its mode:

  PASS   nothing
  CUT    connections are closed, new ones too
  HOLE   nothing comes through, in either direction, and is lost
  SLOW   each piece of data is delayed by up to so many seconds
  LOSE   the answers to writes are lost, the writes are done
  LATE   writes are kept until the mode ends, and are delivered then, even if nobody waits for the answer any more

The proxy knows of each protocol what a request is, and which of them write: it counts them.
"""

import asyncio
import os
import random
import signal
import socket
import struct

PASS, CUT, HOLE, SLOW, LOSE, LATE = range(6)
NAMES = ('pass', 'cut', 'hole', 'slow', 'lose answers', 'late writes')
LOOK_S = 0.02
DONE_S = 2


class Http:
    """etcd and Consul: (method and path, is it a write) for each request."""

    WRITES = (b'POST /v3/kv/txn', b'PUT /v1/txn ')

    def requests(self, data):
        return [line.startswith(self.WRITES) for line in data.split(b'\r\n') if line.endswith(b' HTTP/1.1')]


class Frames:
    """Messages with their length; a client's stream is cut into them as it comes."""

    def __init__(self):
        self.buffer = b''
        self.greeted = False

    def requests(self, data):
        self.buffer += data
        found = []
        while (frame := self.frame()) is not None:
            if not self.greeted:
                self.greeted = True
            elif (write := self.is_write(frame)) is not None:
                found.append(write)
        return found

    def frame(self):
        at = self.length_at()
        if len(self.buffer) < at + 4:
            return None
        size = at + struct.unpack_from('>I', self.buffer, at)[0] + self.LENGTH_IS_OUTSIDE
        if len(self.buffer) < size:
            return None
        frame, self.buffer = self.buffer[:size], self.buffer[size:]
        return frame


class Postgresql(Frames):
    LENGTH_IS_OUTSIDE = 0

    def length_at(self):
        return 1 if self.greeted else 0

    def is_write(self, frame):
        return None if frame[:1] != b'Q' else b'BEGIN' in frame


class Zookeeper(Frames):
    LENGTH_IS_OUTSIDE = 4
    # create, setData, multi; getData, children, sync
    KINDS = {1: True, 5: True, 14: True, 4: False, 8: False, 9: False, 12: False}

    def length_at(self):
        return 0

    def is_write(self, frame):
        return self.KINDS.get(struct.unpack_from('>i', frame, 8)[0])


PROTOCOLS = {'postgresql': Postgresql, 'etcd': Http, 'consul': Http, 'zookeeper': Zookeeper}


class Proxy:
    """slots: how many servers; targets: ports of the coordinator's members."""

    def __init__(self, context, kind, slots, targets):
        self.protocol = PROTOCOLS[kind]
        self.targets = targets
        self.modes = context.RawArray('i', slots)
        self.delays = context.RawArray('d', slots)
        self.requests = context.RawArray('q', slots)
        self.sockets = [[socket.create_server(('127.0.0.1', 0)) for _ in targets] for _ in range(slots)]
        self.process = context.Process(target=self.main, daemon=True)

    def ports(self, slot):
        return [s.getsockname()[1] for s in self.sockets[slot]]

    def set_mode(self, slot, mode, delay=0.0):
        self.delays[slot] = delay
        self.modes[slot] = mode

    def start(self):
        self.process.start()
        for sockets in self.sockets:
            for s in sockets:
                s.close()

    def stop(self):
        if self.process.pid:
            self.process.terminate()
            self.process.join(10)

    def main(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        asyncio.run(self.serve())

    async def serve(self):
        for slot, sockets in enumerate(self.sockets):
            for s, target in zip(sockets, self.targets):
                await asyncio.start_server(lambda reader, writer, slot=slot, target=target:
                                           self.connection(slot, target, reader, writer), sock=s)
        await asyncio.Event().wait()

    async def connection(self, slot, target, reader, writer):
        try:
            if self.modes[slot] == CUT:
                raise OSError
            up_reader, up_writer = await asyncio.open_connection('127.0.0.1', target)
        except OSError:
            writer.transport.abort()
            return
        state = {'lost': False, 'late': False}
        await asyncio.gather(self.there(slot, reader, up_writer, state), self.back(slot, up_reader, writer, state),
                             return_exceptions=True)

    async def travel(self, slot):
        """Wait as long as data takes.  False: it does not arrive."""
        mode = self.modes[slot]
        if mode == SLOW:
            await asyncio.sleep(random.uniform(0, self.delays[slot]))
        return mode not in (CUT, HOLE)

    async def there(self, slot, reader, writer, state):
        protocol = self.protocol()
        try:
            while data := await reader.read(65536):
                requests = protocol.requests(data)
                self.requests[slot] += len(requests)
                if not await self.travel(slot):
                    if self.modes[slot] == CUT:
                        return
                    continue
                if any(requests):
                    state['lost'] = self.modes[slot] == LOSE
                    while self.modes[slot] == LATE:
                        state['late'] = True
                        await asyncio.sleep(LOOK_S)
                writer.write(data)
                await writer.drain()
            if state['late']:
                # some servers drop the request of a client that has gone
                await asyncio.sleep(DONE_S)
        except OSError:
            pass
        finally:
            writer.close()

    async def back(self, slot, reader, writer, state):
        try:
            while data := await reader.read(65536):
                if not await self.travel(slot):
                    if self.modes[slot] == CUT:
                        return
                    continue
                if not state['lost']:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
