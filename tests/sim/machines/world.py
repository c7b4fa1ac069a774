"""The simulated machines: brokers that start, crash and come back with their disks, a place for
clients, and everything that faults need to reach.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import kstore.broker.app as app
from kstore.broker.compose.broker import Broker
from kstore.broker.coordination.store import StoreUnavailableError
from kstore.config import BrokerConfig
from kstore.errors import KafkaError
from tests.sim.machines.disk import Disk
from tests.sim.machines.loop import Life, SimLoop, current_life
from tests.sim.machines.network import Network
from tests.sim.machines.patches import virtual_machine
from tests.sim.machines.store import StoreServer

PORT = 9092


class World:
    """One simulation: its loop, network, store and hosts."""

    def __init__(self, seed: int, folder: str) -> None:
        self.seed = seed
        self.random = Random(f"{seed}/world")
        self.loop = SimLoop(Random(f"{seed}/loop"))
        self.network = Network(self.loop, Random(f"{seed}/network"))
        self.loop.network = self.network
        self.store = StoreServer(self.loop)
        self.folder = folder
        self.nodes: dict[int, Node] = {}
        self.target: dict[int, Node] = {}
        """The brokers of another cluster, to which one of this is copied."""
        self.lives: list[Life] = []
        self.trace: list[str] = []
        """What happened, in words; equal seeds give equal traces."""
        self.complaints: list[str] = []
        """The brokers' reports at ERROR."""

    def note(self, sentence: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.time():10.6f} {sentence}")

    def live(self, name: str) -> Life:
        """A new process."""
        life = Life(name, self.loop, self.seed)
        self.lives.append(life)
        return life

    def add_node(self, node_id: int, overrides: dict[str, str]) -> Node:
        """Add the host of a broker; the broker does not run yet."""
        node = self.nodes[node_id] = Node(self, node_id, overrides)
        return node

    def add_target_node(self, node_id: int, overrides: dict[str, str]) -> Node:
        """The same for the cluster that is copied to."""
        node = self.target[node_id] = Node(self, node_id, overrides)
        return node

    def brokers(self) -> list[Node]:
        """The running brokers, except those of the target cluster."""
        return [node for node in self.nodes.values() if node.running]


class _TraceLog(logging.Handler):
    """The messages of brokers to their operators, as lines of the trace."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        life = current_life()
        name = life.name if life is not None else "?"
        told = record.getMessage().replace(self._world.folder, "")
        problem = getattr(record, "problem", None) or (record.exc_info or (None, None))[1]
        if problem is not None:
            told += f": {problem!r}" + "".join(traceback.format_tb(problem.__traceback__)[-3:])
            if not isinstance(problem, KafkaError | OSError | StoreUnavailableError):
                self._world.loop.problems.append(f"{name} says: {told}")
        if record.levelno >= logging.ERROR:
            self._world.complaints.append(told)
        self._world.note(f"{name} says: {told}")


@contextmanager
def new_world(seed: int, plant: Callable[[Any], None] | None = None) -> Iterator[World]:
    """A world in its own folder, in memory if possible."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="kstore-sim-", dir=base)
    world = World(seed, folder)
    logger = logging.getLogger("kstore")
    handler = _TraceLog(world)
    logger.addHandler(handler)
    propagated, logger.propagate = logger.propagate, False
    try:
        with virtual_machine(world.loop, world.store.open, plant):
            try:
                yield world
            finally:
                for node in (*world.nodes.values(), *world.target.values()):
                    node.discard()
                _end(world)
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
        shutil.rmtree(folder, ignore_errors=True)


def _end(world: World) -> None:
    """Drop all tasks without running them."""
    warnings.simplefilter("ignore", RuntimeWarning)
    for life in world.lives:
        life.dead = False
        for task in life.tasks:
            if not task.done():
                # Their `finally` clauses would wait for events that never come.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]
        life.tasks.clear()
    world.loop.close()


class _Address:
    """In place of a listening socket."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def listen(self, backlog: int) -> None:
        """The network listens while the server exists."""

    def close(self) -> None:
        """Nothing to close."""


class Node:
    """The host of one broker: its disk, and its process while it runs."""

    def __init__(self, world: World, node_id: int, overrides: dict[str, str]) -> None:
        self.world = world
        self.node_id = node_id
        self.host = f"broker{node_id}"
        self.disk = Disk(
            os.path.join(world.folder, self.host), Random(f"{world.seed}/disk{node_id}")
        )
        self.life: Life | None = None
        self.ready = False
        self.starts = 0
        self._overrides = overrides
        self._main: Any = None

    @property
    def running(self) -> bool:
        return self.life is not None

    @property
    def broker(self) -> Broker | None:
        """What runs in the process."""
        made = self.life.made if self.life is not None else []
        return made[0] if made else None

    def start(self) -> None:
        """Start the broker's process with the contents of its disk."""
        assert self.life is None
        self.starts += 1
        life = self.life = self.world.live(f"{self.host}.{self.starts}")
        life.disk = self.disk
        self.ready = False
        self.world.note(f"{life.name} starts")
        config = BrokerConfig.load(
            overrides={
                "node.id": str(self.node_id),
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                "log.dirs": os.path.join(self.disk.folder, "logs"),
            }
            | self._overrides,
            environ={},
        )
        self._main = life.spawn(self._run(life, config))

    async def _run(self, life: Life, config: BrokerConfig) -> None:
        def ready(*told: object) -> None:
            self.ready = True
            self.world.note(f"{life.name} is ready")

        try:
            await app._run(config, [[_Address(self.host, PORT)]], ready)  # type: ignore[list-item]
        except Exception as problem:  # noqa: BLE001 - the process ends with it
            self.world.note(f"{life.name} ends: {type(problem).__name__}: {problem}")
        else:
            self.world.note(f"{life.name} has stopped")
        if self.life is life:
            self._ended(life, store_after_s=0.0, silently=False)

    def terminate(self) -> None:
        self.world.note(f"{self.life.name} is told to stop")
        callback, args = self.life.signals[signal.SIGTERM]
        self.world.loop.call_soon(callback, *args, context=self.life.context.copy())

    def kill(self, *, power_loss: bool = False) -> None:
        """End the process immediately: SIGKILL, or the whole machine with everything that it had
        not written to disk.
        """
        life = self.life
        assert life is not None
        copy, synced = self.disk.snapshot(), dict(self.disk.synced)
        life.dead = True
        _let_go(life)
        self.disk.replace_by(copy, synced)
        lost = self.disk.lose_unsynced() if power_loss else 0
        how = f"loses power and {lost} unsynced bytes" if power_loss else "is killed"
        self.world.note(f"{life.name} {how}")
        after = self.world.store.session_timeout_s if power_loss else 0.05
        self._ended(life, store_after_s=after, silently=power_loss)

    def _ended(self, life: Life, *, store_after_s: float, silently: bool) -> None:
        life.dead = True
        self.life = None
        self.ready = False
        self.world.network.host_died(life, silently=silently)
        self.world.store.life_ended(life, after_s=store_after_s)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a delay. Does nothing if the process is already stopped: the
        order of events that wait for its end would change.
        """
        assert self.life is not None
        now = self.world.loop.time()
        if self.life.frozen_until > now:
            return
        self.world.note(f"{self.life.name} stands still for {seconds:.3f} s")
        life, store = self.life, self.world.store
        life.frozen_until = now + seconds
        if len(self.world.nodes) > 1 and seconds > store.session_timeout_s:
            self.world.loop.call_later(store.session_timeout_s, store.expire_sessions, life)

    def discard(self) -> None:
        """The simulation has ended: close files."""
        if self.life is not None:
            self.life.dead = True
            _let_go(self.life)
            self.life = None


def _let_go(life: Life) -> None:
    """Close what a dead process had open, so that another may open it. The caller discards what
    closing writes.
    """
    for broker in life.made:
        with suppress(Exception):
            broker.log_manager.close()
        with suppress(Exception):
            broker.descriptors.close()
