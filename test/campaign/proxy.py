"""The network between each server and the coordinator: a TCP proxy, in a process of its own.

Every (server, member of the coordinator) has a port of its own.  What happens to a server's traffic is its mode:

  PASS   nothing
  CUT    connections are closed, new ones too
  HOLE   nothing comes through, in either direction, and is lost
  SLOW   each piece of data is delayed by up to so many seconds
  LOSE   the answers to writes are lost, the writes are done
  LATE   writes are kept until the mode ends, and are delivered then, even if nobody waits for the answer any more

It counts the requests of each server.
"""

import asyncio
import os
import random
import re
import signal
import socket

PASS, CUT, HOLE, SLOW, LOSE, LATE = range(6)
NAMES = ('pass', 'cut', 'hole', 'slow', 'lose answers', 'late writes')
LOOK_S = 0.02
DONE_S = 2


# Of each protocol, what a request begins with, and one that writes: that comes in a piece of its own.
REQUESTS = {
    'postgresql': (rb'Q', rb'Q.{4}BEGIN'),
    'etcd': (rb'POST /', rb'POST /v3/kv/txn'),
    'consul': (rb'(?:GET|PUT) /', rb'PUT /v1/txn '),
    # create, setData, multi; getData, children, sync
    'zookeeper': (rb'.{8}\0\0\0[\x01\x05\x0e\x04\x08\x09\x0c]', rb'.{8}\0\0\0[\x01\x05\x0e]'),
}


def requests_in(kind, data):
    """Those of ZooKeeper may come together, each behind its length."""
    while kind == 'zookeeper' and data:
        size = 4 + int.from_bytes(data[:4], 'big')
        yield data[:size]
        data = data[size:]
    yield data


class Proxy:
    """slots: how many servers; targets: ports of the coordinator's members."""

    def __init__(self, context, kind, slots, targets):
        self.request, self.write = (re.compile(form, re.DOTALL) for form in REQUESTS[kind])
        self.kind = kind
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
        try:
            while data := await reader.read(65536):
                self.requests[slot] += sum(bool(self.request.match(one)) for one in requests_in(self.kind, data))
                if not await self.travel(slot):
                    if self.modes[slot] == CUT:
                        return
                    continue
                if self.write.match(data):
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
