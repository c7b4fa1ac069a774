"""The network between simulated hosts: streams with delays from the seed. They can be cut in one or
both directions, held, or reset. A host is the name of a life up to the first dot.

A transport has no socket. It claims to be a TLS connection's, so that a broker's connection writes
through it. Bytes of one direction of a connection keep their order; those of different connections
do not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from tests.sim.machines.loop import Life, SimLoop, current_life

HIGH_WATER_BYTES = 256 * 1024
CONNECT_TIMEOUT_S = 8.0


class Network:
    """All listeners and connections, and the current faults between hosts."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.blocked: set[tuple[str, str]] = set()
        """(from, to): nothing gets through in this direction."""
        self.delay_s: dict[tuple[str, str], float] = {}
        """(from, to): added to each delivery."""
        self.slowness = random.choice([1, 1, 4, 20])
        """How many times as long as in the fastest network everything takes."""
        self.give_up_s = 20.0
        """How long a sender's bytes may be stuck before its system gives the connection up."""
        self._listeners: dict[tuple[str, int], _Listener] = {}
        self._endpoints: dict[Endpoint, None] = {}
        self._next_port = 40000

    def latency(self, source: str, target: str) -> float:
        """The current delay for some bytes."""
        if source == target:
            return 0.00002
        slow = self.random.random() < 0.01
        base = self.random.uniform(0.0001, 0.0008) + (self.random.expovariate(50) if slow else 0.0)
        return base * self.slowness + self.delay_s.get((source, target), 0.0)

    # ---- called by the loop ----

    def listen(self, factory: Callable[[], Any], address: tuple[str, int]) -> _Listener:
        """Accept connections for the running life."""
        life = current_life()
        assert life is not None
        listener = self._listeners[address[:2]] = _Listener(self, address[:2], factory, life)
        return listener

    async def connect(self, factory: Callable[[], Any], host: str | None, port: int | None) -> Any:
        """Open a connection from the running life; raises OSError as a socket would."""
        life = current_life()
        assert life is not None
        assert host is not None
        assert port is not None
        source = host_of(life)
        await self._cross(source, host)
        listener = self._listeners.get((host, port))
        refused = listener is None or listener.life.dead
        await self._cross(host, source)
        if refused or listener is None or listener.life.dead:
            raise ConnectionRefusedError(111, f"connection to {host}:{port} refused")
        self._next_port += 1
        near = Endpoint(self, life, (source, self._next_port), (host, port))
        far = Endpoint(self, listener.life, (host, port), (source, self._next_port))
        near.other, far.other = far, near
        near.protocol, far.protocol = factory(), None
        for end in (near, far):
            self._endpoints[end] = None
        far.accept(listener.factory)
        near.protocol.connection_made(near)
        return near, near.protocol

    async def _cross(self, source: str, target: str) -> None:
        """Deliver one packet; it is tried again while the direction is blocked."""
        tries_until = self.loop.time() + CONNECT_TIMEOUT_S
        await asyncio.sleep(self.latency(source, target))
        while (source, target) in self.blocked:
            await asyncio.sleep(0.25)
            if self.loop.time() > tries_until:
                raise TimeoutError(110, f"connection from {source} to {target} timed out")

    # ---- faults ----

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Block one direction between two hosts, or both."""
        self.blocked.add((source, target))
        if both:
            self.blocked.add((target, source))

    def heal(self) -> None:
        self.blocked.clear()
        self.delay_s.clear()
        for end in list(self._endpoints):
            end.pump()

    def reset(self, one: str, other: str) -> None:
        """Reset the connections between two hosts."""
        for end in list(self._endpoints):
            if {end.host, end.peer_host} == {one, other}:
                end.break_off(ConnectionResetError(104, "connection reset"))

    def host_died(self, life: Life, *, silently: bool) -> None:
        """A process has ended: its peers notice, unless its machine failed too."""
        for address, listener in list(self._listeners.items()):
            if listener.life is life:
                del self._listeners[address]
        for end in list(self._endpoints):
            if end.life is life:
                end.vanish(silently=silently)

    def forget(self, end: Endpoint) -> None:
        """An endpoint is closed."""
        self._endpoints.pop(end, None)


def host_of(life: Life) -> str:
    """The host of a process: "broker1" of "broker1.3"."""
    return life.name.partition(".")[0]


class _Listener(asyncio.AbstractServer):
    def __init__(
        self, network: Network, address: tuple[str, int], factory: Callable[[], Any], life: Life
    ) -> None:
        self.factory = factory
        self.life = life
        self._network = network
        self._address = address

    def close(self) -> None:
        if self._network._listeners.get(self._address) is self:
            del self._network._listeners[self._address]

    async def wait_closed(self) -> None:
        """It closes at once."""

    def is_serving(self) -> bool:
        return self._network._listeners.get(self._address) is self


class Endpoint(asyncio.Transport):
    """One end of a connection, and the bytes that it sent and that have not arrived."""

    def __init__(
        self, network: Network, life: Life, local: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__()
        self.network = network
        self.loop = network.loop
        self.life = life
        self.host, self.peer_host = local[0], peer[0]
        self.other: Endpoint
        self.protocol: Any = None
        self.closed = False
        self._gone = False
        self._torn = False
        self._names = {"peername": peer, "sockname": local, "sslcontext": self, "socket": None}
        self._sending: deque[bytes | None] = deque()
        self._sending_bytes = 0
        self._last_arrival = 0.0
        self._stuck_since: float | None = None
        self._write_paused = False
        self._read_paused = False
        self._arrived: deque[bytes | None] = deque()

    def accept(self, factory: Callable[[], Any]) -> None:
        """The listening side: create its protocol as its process."""

        def made() -> None:
            if self.closed or self._gone:
                return
            self.protocol = factory()
            self.protocol.connection_made(self)
            self._drain()

        self.loop.call_soon(made, context=self.life.context.copy())

    # ---- called by protocols ----

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Names, and a fake TLS object."""
        return self._names.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: Any) -> None:
        """Send bytes; they arrive later."""
        if self.closed or self._gone:
            return
        view = bytes(data)
        if not view:
            return
        self._sending.append(view)
        self._sending_bytes += len(view)
        if self._sending_bytes > HIGH_WATER_BYTES and not self._write_paused:
            self._write_paused = True
            self.protocol.pause_writing()
        self.pump()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        """The number of bytes that are not delivered yet."""
        return self._sending_bytes

    def pause_reading(self) -> None:
        self._read_paused = True

    def resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self.loop.call_soon(self._drain, context=self.life.context.copy())

    def close(self) -> None:
        """Close after everything was sent."""
        if self.closed:
            return
        self.closed = True
        self._sending.append(None)
        self.pump()
        self.loop.call_soon(self._lost, None, context=self.life.context.copy())

    def abort(self) -> None:
        if self._gone:
            return
        self.closed = True
        self._sending.clear()
        self._sending_bytes = 0
        self._sending.append(None)
        self.pump()
        self.loop.call_soon(self._lost, None, context=self.life.context.copy())

    # ---- in transit ----

    def pump(self) -> None:
        """Send the waiting bytes, unless the direction is blocked."""
        if not self._sending:
            return
        if (self.host, self.peer_host) in self.network.blocked:
            if self._stuck_since is None:
                self._stuck_since = self.loop.time()
                self.loop.call_later(self.network.give_up_s, self._give_up, self._stuck_since)
            return
        self._stuck_since = None
        while self._sending:
            part = self._sending.popleft()
            arrival = self.loop.time() + self.network.latency(self.host, self.peer_host)
            self._last_arrival = max(self._last_arrival, arrival)
            self.loop.call_at(self._last_arrival, self._deliver, part, context=self.life_of_peer())

    def life_of_peer(self) -> Any:
        """The context in which the other side is notified."""
        return self.other.life.context.copy()

    def _deliver(self, part: bytes | None) -> None:
        """Runs as the other side's process."""
        if self._torn:
            return
        if part is not None:
            self._sending_bytes -= len(part)
            if self._write_paused and self._sending_bytes < HIGH_WATER_BYTES // 2:
                self._write_paused = False
                self.loop.call_soon(self._resume, context=self.life.context.copy())
        self.other._arrived.append(part)
        self.other._drain()

    def _resume(self) -> None:
        if self.protocol is not None and not self._gone:
            self.protocol.resume_writing()

    def _drain(self) -> None:
        while self._arrived and self.protocol is not None and not self._read_paused:
            part = self._arrived.popleft()
            if self._gone or self.closed:
                continue
            if part is None:
                self.closed = True
                self._lost(None)
            else:
                self._receive(part)

    def _receive(self, part: bytes) -> None:
        random = self.network.random
        if len(part) > 1 and random.random() < 0.05:
            cut = random.randrange(1, len(part))
            self._arrived.appendleft(part[cut:])
            part = part[:cut]
        if not hasattr(self.protocol, "get_buffer"):
            self.protocol.data_received(part)
            return
        while part and not self.closed:
            room = memoryview(self.protocol.get_buffer(len(part)))
            size = min(len(room), len(part))
            room[:size] = part[:size]
            room.release()
            self.protocol.buffer_updated(size)
            part = part[size:]
            if self._read_paused and part:
                self._arrived.appendleft(part)
                return

    def _give_up(self, stuck_since: float) -> None:
        if self._stuck_since == stuck_since and not self._gone:
            self.break_off(TimeoutError(110, "connection timed out"))

    # ---- the end ----

    def _lost(self, problem: Exception | None) -> None:
        if self._gone:
            return
        self._gone = self.closed = True
        self.network.forget(self)
        if self.protocol is not None:
            self.protocol.connection_lost(problem)

    def break_off(self, problem: Exception) -> None:
        """The system closes the connection on this side."""
        self.closed = True
        self._sending.clear()
        self._sending_bytes = 0
        self.loop.call_soon(self._lost, problem, context=self.life.context.copy())

    def vanish(self, *, silently: bool) -> None:
        """The process has ended."""
        self._gone = self.closed = True
        self.network.forget(self)
        self._sending.clear()
        # What the kernel had not sent yet, or the other side had not read, may be lost.
        self._torn = silently or self.network.random.random() < 0.5
        other = self.other
        problem = ConnectionResetError(104, "connection reset by peer")
        delay = self.network.latency(self.host, self.peer_host)
        if silently:
            delay += self.network.give_up_s

        def tell() -> None:
            if (self.host, self.peer_host) in self.network.blocked:
                self.loop.call_later(0.25, tell)
            elif not other._gone:
                other.break_off(problem)

        self.loop.call_later(delay, tell)
