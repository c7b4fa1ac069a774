"""Makes virtual what kstore takes from the machine, while a simulation runs: clocks, random
numbers, threads, files, the coordination store.

Modules are patched from outside, by what their names refer to, so the sources need no hooks: `time`
in any module of kstore is the simulated time of the running process.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import pkgutil
import random
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import kstore
import kstore.broker.app as app
import kstore.broker.coordination.lmdb_store as lmdb_store
import kstore.broker.runtime.log_dirs.log_manager as log_manager
import kstore.clients.io.nodes as client_nodes
import kstore.log.log_dir as log_dir
import kstore.log.maintenance as log_maintenance
from kstore.broker.compose import compose
from kstore.broker.compose.broker import Broker
from kstore.clients.io.connection import BrokerConnection
from kstore.env import SystemEnv
from kstore.errors import NetworkError
from kstore.log.local.durability import sync_until
from kstore.log.log_dir_facts import LogDirFacts
from kstore.types import TopicPartition
from tests.sim.machines.loop import InlineExecutor, Life, SimLoop, current_life

NOT_FOR_BROKERS = ("kstore.pipeline", "kstore.cli", "kstore.__main__", "kstore.clients")
"""Not imported: a simulated broker runs none of it. A workload imports what it runs itself."""


class _Environment(SystemEnv):
    """Time, ids and files of the process that opens a log dir."""

    def __init__(self, life: Life) -> None:
        super().__init__(clock=_Clock(life), random=_Random(life), fs=life.disk.files)


class _NoGarbage:
    """The garbage collector of this process is shared by all brokers, so only the simulation
    (run.py) controls it. A killed broker would exclude its objects from collection in all later
    seeds too.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: Callable[[], int]) -> None:
        """See Garbage."""

    def start(self) -> None:
        """See Garbage."""

    def stop(self) -> None:
        """See Garbage."""


class _Clock:
    def __init__(self, life: Life) -> None:
        self._life = life

    def now_ms(self) -> int:
        return self._life.now_ms()

    def monotonic(self) -> float:
        return self._life.loop.time()


class _Random:
    def __init__(self, life: Life) -> None:
        self._life = life

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._life.random.getrandbits(128), version=4)

    def random(self) -> float:
        return self._life.random.random()


@functools.cache
def _import_modules() -> None:
    """Import all that a broker may run, so that its names are there to be patched. Once: a search
    of all folders takes 40 ms, and a short simulation 150.
    """
    for module in pkgutil.walk_packages(kstore.__path__, "kstore."):
        if not module.name.startswith(NOT_FOR_BROKERS):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue  # belongs to an extra that is not installed


@contextmanager
def virtual_machine(
    loop: SimLoop, open_store: Callable[..., Any], plant: Callable[[Any], None] | None = None
) -> Iterator[None]:
    """While it is entered, kstore's modules see the time of the loop and the world of the running
    life; ``plant`` may replace more, for mutations.
    """
    _import_modules()
    undo: list[tuple[Any, str, Any]] = []

    def put(where: Any, name: str, value: Any) -> None:
        undo.append((where, name, getattr(where, name)))
        setattr(where, name, value)

    replaced = {id(old): new for old, new in _replacements(loop)}
    for name, module in list(sys.modules.items()):
        if name.startswith("kstore.") and isinstance(module, types.ModuleType):
            for attribute, value in list(vars(module).items()):
                if id(value) in replaced:
                    put(module, attribute, replaced[id(value)])
    put(lmdb_store, "LmdbStore", open_store)
    put(app, "compose", _make_broker)
    put(app, "Garbage", _NoGarbage)
    put(client_nodes, "open_connection", _open_connection)
    put(LogDirFacts, "when_damaged", _when_damaged)
    put(log_dir, "SystemEnv", _environment)
    put(log_dir, "boot_id", _boot_id)
    put(log_maintenance.Maintenance, "_start", _start_thread)
    put(log_maintenance.Maintenance, "stop", _stop_threads)
    put(log_manager.LogManager, "_serve_appends", _serve_appends)
    if plant is not None:
        plant(put)
    try:
        yield
    finally:
        for where, name, value in reversed(undo):
            setattr(where, name, value)


def _replacements(loop: SimLoop) -> list[tuple[Any, Any]]:
    def now_ns() -> int:
        life = current_life()
        if life is None:
            return int(loop.time() * 1e9)
        return life.now_ms() * 1_000_000

    def source() -> random.Random:
        life = current_life()
        return loop.random if life is None else life.random

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=source().getrandbits(128), version=4)

    clock = _copy(time)
    clock.time_ns, clock.time = now_ns, lambda: now_ns() / 1e9
    clock.monotonic = clock.perf_counter = loop.time
    clock.monotonic_ns = clock.perf_counter_ns = lambda: int(loop.time() * 1e9)
    clock.sleep = loop.advance
    numbers = _copy(random)
    for name in ("random", "randrange", "randint", "choice", "shuffle", "uniform", "getrandbits"):
        setattr(numbers, name, lambda *a, _name=name: getattr(source(), _name)(*a))
    ids = _copy(uuid)
    ids.uuid4 = new_uuid
    return [
        (time, clock), (time.time_ns, now_ns), (time.monotonic, loop.time),
        (time.time, clock.time), (time.sleep, clock.sleep), (random, numbers), (uuid, ids),
        (uuid.uuid4, new_uuid), (os.urandom, lambda size: source().randbytes(size)),
        (ThreadPoolExecutor, InlineExecutor),
    ]  # fmt: skip


def _copy(module: types.ModuleType) -> Any:
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update(module.__dict__)
    return copy


def _make_broker(*given: Any) -> Broker:
    broker = compose(*given)
    life = current_life()
    life.made.append(broker)
    # The duration of a request is real time here: it must not decide anything.
    broker.plane.turn_us = broker.plane.slice_us = 1 << 40
    broker.table.replication.clock = lambda: int(life.loop.time() * 1000)
    return broker


def _when_damaged(log_dir: LogDirFacts, tell: Callable[[TopicPartition], object]) -> None:
    """The error is reported in the process that has the log dir, whichever process caused the read
    that found it.
    """
    life = current_life()
    log_dir.state.on_damage = tell if life is None else functools.partial(life.call, tell)


async def _open_connection(
    host: str, port: int, settings: Any, *, setup_timeout_ms: float, node_id: int = -1, **_: Any
) -> BrokerConnection:
    """A client's connection without a socket."""
    connection = BrokerConnection(
        f"{host}:{port}",
        node_id,
        settings["client.id"],
        request_timeout_ms=settings["request.timeout.ms"],
    )
    try:
        async with asyncio.timeout(setup_timeout_ms / 1000):
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection, host, port)
            await connection.agree()
    except OSError as error:  # asyncio's TimeoutError too
        connection.close()
        raise NetworkError(f"cannot connect to {host}:{port}: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _boot_id() -> bytes:
    life = current_life()
    return bytes(life.disk.boot_id())


def _environment() -> SystemEnv:
    life = current_life()
    return SystemEnv() if life is None else _Environment(life)


def _serve_appends(self: Any, log_dir: Any) -> None:
    """Appends that may wait are done later, one after the other; in some lives all appends are."""
    life = current_life()
    assert life is not None
    appends = log_dir.appends
    later = life.loop.worker(appends)
    appends.serve(life.loop.call_soon, later.add)
    appends.calm.over_budget = life.random.random() < 0.3


def _start_thread(self: Any, name: str, run: Callable[[], None]) -> None:
    """The threads of a log dir as timers: a tick per second, a flush at once."""
    life = current_life()
    if life is None or self._stop.is_set() or name in self._threads:
        return
    self._threads[name] = None
    is_flush = name == "kstore-flush"

    def turn() -> None:
        self._threads.pop(name, None)
        if self._stop.is_set() or self._dir.closed:
            return
        if is_flush:
            self._sync_wake.set()
            _flush_once(self)
            return
        self._wake.clear()
        try:
            self.tick()
        except (OSError, log_maintenance.LogError) as error:
            self.last_error = error
        if self._unlinks or self._dirty:
            _start_thread(self, name, run)

    delay = 0.001 if is_flush else self._interval
    life.loop.call_later(delay, turn, context=life.context.copy())


def _flush_once(self: Any) -> None:
    waits, self._sync_waits = self._sync_waits, {}
    for log, rows in waits.items():
        sync_until(log, max(offset for offset, _ in rows))
        for _, callback in rows:
            callback()


def _stop_threads(self: Any) -> None:
    self._stop.set()
    self._threads.clear()
    self._unlink(float("inf"))
