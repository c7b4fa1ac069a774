"""The broker as a process: listen, open, serve until SIGTERM or SIGINT, stop cleanly.

`serve` runs it from start to end. Imports are few and late: a single broker answers within 0.2 s of
exec.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstore.broker.compose import compose
from kstore.broker.coordination.store import StoreUnavailableError
from kstore.broker.metrics.loop_stall import LoopStall
from kstore.broker.runtime.garbage import Garbage
from kstore.broker.runtime.log_dirs.descriptors import raise_descriptor_limit
from kstore.broker.runtime.log_dirs.maintenance import Maintenance
from kstore.broker.runtime.topics.topics import SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from kstore.broker.server import Server, connection_factory
from kstore.broker.state.metadata.image import Endpoint
from kstore.log.errors import LogStorageError
from kstore.net.transport import bind, listen
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    from kstore.broker.compose.broker import Broker
    from kstore.broker.http_api import Listening
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.security.tls_acceptor import TlsAcceptor
    from kstore.broker.runtime.service_manager import ServiceManager
    from kstore.config import BrokerConfig

__all__ = ["serve"]

STOP_TIMEOUT_S = 5.0
END_TXN = 26
WRITE_SHARE_GROUP_STATE = 85
SWITCH_S = 0.0005
"""Python's switch interval: how long a thread that runs Python code delays the loop each time the
loop wakes up. Python's default is ten times as long.
"""
IDLE_CHECK_S = 5.0
STORE_PAUSE_S = 0.5
"""The pause between two attempts to reach the coordination store at the start."""
log = logging.getLogger("kstore.broker")


OnReady = Callable[[str, int, "str | None"], None]
"""Called with host, port and, if kstore.http.listener is set, the URL of the HTTP API."""


def serve(config: BrokerConfig, on_ready: OnReady) -> None:
    """Run a broker until SIGTERM or SIGINT; ``on_ready`` is called once it serves clients.

    Raises ListenError, LogError or StoreError if it cannot start. A broker of a cluster waits for a
    store that it cannot reach.
    """
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_S)
    sockets = _bind(config)
    loop = _watched_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_run(config, sockets, on_ready))
    finally:
        for bound in sockets:
            for sock in bound:
                sock.close()
        loop.close()
        asyncio.set_event_loop(None)


def _watched_loop() -> asyncio.AbstractEventLoop:
    from kstore._fast.network.loop_watch import LoopWatch, shorten_slice
    from kstore._fast.network.watched_loop import WatchedLoop

    watch = LoopWatch({key: api.name.encode() for key, api in APIS.items()})
    watch.attach()
    shorten_slice()
    return WatchedLoop(watch)


def _bind(config: BrokerConfig) -> list[list[socket.socket]]:
    """Bind the port of each listener, so that a port in use is reported before any log is opened.

    A broker that may have to wait for a ZooKeeper ensemble does not listen until it is open, so
    clients try another broker meanwhile.
    """
    backlog = None if config["zookeeper.connect"] else config["socket.listen.backlog.size"]
    bound: list[list[socket.socket]] = []
    try:
        for listener in config.listeners:
            bound.append(bind(listener.host, listener.port, backlog=backlog))
            for sock in bound[-1]:
                _size_buffers(config, sock)
    except BaseException:
        for sockets in bound:
            for sock in sockets:
                sock.close()
        raise
    return bound


def _size_buffers(config: BrokerConfig, sock: socket.socket) -> None:
    """Set the buffer sizes of accepted connections, if they are configured.

    Kafka's default of 100 KB is not applied: the system's default sizes grow with the connection.
    """
    for name, option in (
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ):
        if config.source(name).kind != "default" and config[name] > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, config[name])


async def _run(config: BrokerConfig, sockets: list[list[socket.socket]], on_ready: OnReady) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if config["kstore.stop.with.stdin"]:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end, sys.stdin.fileno(), stop)
    ports = {
        listener.name: bound[0].getsockname()[1]
        for listener, bound in zip(config.listeners, sockets, strict=True)
    }
    server = Server(config, loop)
    broker = compose(config, loop, server, server.report)
    server.publish(broker)
    manager: ServiceManager | None = None
    if "NOTIFY_SOCKET" in os.environ:
        from kstore.broker.runtime.service_manager import ServiceManager

        manager = ServiceManager(os.environ, loop, server.report)
        on_ready = manager.attend(on_ready, stop)
    without_disks: list[str] = []

    def stop_without_disks(why: str) -> None:
        log.critical("%s: this broker stops", why)
        without_disks.append(why)
        stop.set()

    broker.log_dir_failures.on_last = stop_without_disks
    try:
        if await _opened(broker, _endpoints(config, ports), stop):
            for sock in itertools.chain.from_iterable(sockets):
                sock.listen(config["socket.listen.backlog.size"])
            await _serve(config, broker, server, sockets, ports, on_ready, stop)
    finally:
        broker.close()
        if manager is not None:
            manager.close()
    if without_disks:
        raise LogStorageError(errno.EIO, without_disks[0])


async def _opened(broker: Broker, endpoints: tuple[Endpoint, ...], stop: asyncio.Event) -> bool:
    """Open the broker. In a cluster, retry until the coordination store answers. Returns False if
    the broker was asked to stop first.
    """
    while True:
        try:
            broker.open(endpoints)
            return True
        except StoreUnavailableError as problem:
            if not broker.shares_store:
                raise
            broker.report(f"waiting for the coordination store: {problem}")
        try:
            await asyncio.wait_for(stop.wait(), STORE_PAUSE_S)
            return False
        except TimeoutError:
            continue


async def _serve(
    config: BrokerConfig,
    broker: Broker,
    server: Server,
    sockets: list[list[socket.socket]],
    ports: dict[str, int],
    on_ready: OnReady,
    stop: asyncio.Event,
) -> None:
    """Accept connections until the broker is asked to stop; then answer the requests in flight."""
    loop = asyncio.get_running_loop()
    backlog = config["socket.listen.backlog.size"]
    accepting: list[asyncio.AbstractServer | Listening | TlsAcceptor] = []
    for listener, bound in zip(config.listeners, sockets, strict=True):
        factory = connection_factory(broker, listener.name)
        security = broker.security
        secure = None if security is None else security.acceptor(listener.name, factory, bound)
        accepting += [secure] if secure else await listen(loop, factory, bound, backlog)
    stall = LoopStall(loop)
    stall.start()
    loop.call_soon(broker.holds.start)
    idle = loop.create_task(_close_idle(broker, config["connections.max.idle.ms"]))
    maintenance = Maintenance(broker.node, broker.log_manager)
    maintenance.start()
    garbage = Garbage(loop, lambda: sum(broker.plane.request_counts().values()))
    garbage.start()
    first = config.listeners[0]
    try:
        if config["kstore.metrics.listener"]:
            accepting.append(await _serve_metrics(broker, stall))
        api_url: str | None = None
        if config["kstore.http.listener"]:
            from kstore.broker.http_api import serve_api

            api, api_url = await serve_api(server, stall)
            accepting.append(api)
            log.info("the HTTP API is at %s", api_url)
        if not await _joined(broker.membership, stop):
            return
        await broker.request_watch.loaded()
        on_ready(first.host, ports[first.name], api_url)
        await _begin_coordinators(broker, server)
        await stop.wait()
    finally:
        await broker.leave()
        stall.stop()
        idle.cancel()
        maintenance.stop()
        garbage.stop()
        for acceptor in accepting:
            acceptor.close()
        if broker.moves.made is not None:
            await broker.moves.made.close(STOP_TIMEOUT_S)
        for part in (
            broker.auto_topic_creation.made,
            broker.transactions.made,
            broker.groups.made,
            broker.persister.made,
            broker.share_coordinator.made,
        ):
            if part is not None:
                await part.close()
        await server.finish(STOP_TIMEOUT_S)
        await broker.request_watch.close()


async def _begin_coordinators(broker: Broker, server: Server) -> None:
    """Create the coordinators that have work to do before any request arrives."""
    if TRANSACTION_TOPIC in broker.image.topics:
        # A prepared transaction blocks readers until it is completed.
        await server.loading.wait(END_TXN)
        broker.loop.call_soon(broker.transactions)
    if SHARE_STATE_TOPIC in broker.image.topics:
        # The share coordinator deletes superseded records from its logs.
        await server.loading.wait(WRITE_SHARE_GROUP_STATE)
        broker.loop.call_soon(broker.share_coordinator)


async def _joined(membership: Membership, stop: asyncio.Event) -> bool:
    """Wait until this broker has joined the cluster. Returns False if it was asked to stop
    first.
    """
    joining = asyncio.ensure_future(membership.start())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({joining, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if joining.done():
            joining.result()
        return joining.done()
    finally:
        joining.cancel()
        stopping.cancel()


async def _serve_metrics(broker: Broker, stall: LoopStall) -> asyncio.AbstractServer:
    from kstore.broker.http_api import serve_metrics

    server, where = await serve_metrics(broker, stall)
    log.info("metrics are at %s", where)
    return server


def _stop_at_end(descriptor: int, stop: asyncio.Event) -> None:
    """Stop when standard input is closed: the process that started this broker has ended."""
    if not os.read(descriptor, 4096):
        asyncio.get_running_loop().remove_reader(descriptor)
        stop.set()


async def _close_idle(broker: Broker, idle_ms: int) -> None:
    while True:
        await asyncio.sleep(IDLE_CHECK_S)
        broker.plane.close_idle(idle_ms)


def _endpoints(config: BrokerConfig, ports: dict[str, int]) -> tuple[Endpoint, ...]:
    """The advertised endpoints; port 0 becomes the port that was found free."""
    return tuple(
        Endpoint(listener.name, listener.host, listener.port or ports[listener.name])
        for listener in config.advertised_listeners
    )
