"""The faults of a simulation: what fails, when, and for how long. The seed decides.

A fault is a row: its name, its action, and whether it needs several brokers. Each fault heals by
itself or when `Faults.stop` heals everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from tests.sim.history import Place
from tests.sim.machines.damage import INDEX_DAMAGES, SEGMENT_DAMAGES, Damage, flip_bit
from tests.sim.machines.world import Node, World
from tests.sim.workloads.client import Workload

MOVES = 4
"""Of leaders, between a copy of the coordination store and its restore."""
CUTS = 3
"""Of segments, of who was in sync alone."""
MOST_SKEW_MS = 3_500_000
"""Brokers refuse records of more than an hour after their own time, for good."""


class Fault(NamedTuple):
    """One kind of fault."""

    strike: Callable[[Faults], None]
    weight: int
    cluster_only: bool
    explanation: str


class Faults:
    """Causes faults now and then, until it is stopped."""

    def __init__(
        self,
        world: World,
        kinds: tuple[str, ...],
        *,
        pause_s: tuple[float, float],
        target: bool = False,
    ) -> None:
        """``target``: the faults are in the cluster that is copied to."""
        self.world = world
        self.nodes = world.target if target else world.nodes
        self.random = Random(f"{world.seed}/{'target-' if target else ''}faults")
        self.clients: list[str] = []
        self.damaged_topic = ""
        self.damaged: set[Place] = set()
        """Partitions that have a damaged segment."""
        self.bad_disk: Node | None = None
        """The broker whose files are damaged: the other brokers' data must be enough."""
        self.copied = False
        """Whether there is a copy of the coordination store that will be restored."""
        self.workloads: list[Workload] = []
        """Those that must know of copies of the store."""
        self.stopping = False
        self.struck: dict[str, int] = {}
        many = len(self.nodes) > 1
        self._pause_s = pause_s
        self.kinds = [kind for kind in kinds if many or not FAULTS[kind].cluster_only]

    async def run(self) -> None:
        while not self.stopping and self.kinds:
            await asyncio.sleep(self.random.uniform(*self._pause_s))
            if self.stopping:
                return
            weights = [FAULTS[kind].weight for kind in self.kinds]
            kind = self.random.choices(self.kinds, weights)[0]
            self.struck[kind] = self.struck.get(kind, 0) + 1
            FAULTS[kind].strike(self)

    def stop(self) -> None:
        """Heal everything and start the brokers that are down."""
        self.stopping = True
        world = self.world
        world.note("the faults are over")
        world.network.heal()
        world.store.heal()
        for node in self.nodes.values():
            node.disk.full = False
            if node.life is not None:
                node.life.disk_delay_s = 0.0
        self._start_all()

    def _start_all(self) -> None:
        """Start the brokers that are down, now and after those that are still stopping."""
        for node in self.nodes.values():
            if node.life is None:
                node.start()
        self.world.loop.call_later(0.2, self._start_all)

    # ---- what faults need ----

    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.running]

    def victim(self) -> Node | None:
        """A running broker of a cluster of which at most a minority may be down."""
        running = self.running()
        ready = [node for node in running if node.ready]
        total = len(self.nodes)
        if not ready or (
            total > 1 and len(running) <= total // 2 + 1 and self.random.random() < 0.8
        ):
            return None
        return self.random.choice(ready)

    def later(self, least_s: float, most_s: float, what: Callable[[], None]) -> None:
        """Do something after a delay, unless everything was healed meanwhile."""

        def go() -> None:
            if not self.stopping:
                what()

        self.world.loop.call_later(self.random.uniform(least_s, most_s), go)

    def start_again(self, node: Node) -> None:
        """Start a broker that is down, after a delay."""

        def start() -> None:
            if node.life is None:
                node.start()

        self.later(0.05, 6.0, start)

    def two_hosts(self) -> tuple[str, str]:
        """Two hosts; at least one of them is a broker's."""
        brokers = [node.host for node in self.nodes.values()]
        one = self.random.choice(brokers)
        other = self.random.choice([h for h in brokers + self.clients if h != one])
        return (one, other) if self.random.random() < 0.5 else (other, one)


def _kill(faults: Faults) -> None:
    node = faults.victim()
    if node is not None:
        node.kill()
        faults.start_again(node)


def _power_loss(faults: Faults) -> None:
    node = faults.victim()
    if node is not None:
        node.kill(power_loss=True)
        faults.start_again(node)


def _restart(faults: Faults) -> None:
    node = faults.victim()
    if node is not None:
        node.terminate()
        life = node.life

        def impatient() -> None:
            if node.life is life and life is not None:
                node.kill()
            if node.life is None:
                node.start()

        faults.later(3.0, 12.0, impatient)


def _freeze(faults: Faults) -> None:
    node = faults.victim()
    if node is not None:
        node.freeze(faults.random.choice([0.05, 0.5, 3.0, 8.0]))


def _partition(faults: Faults) -> None:
    network = faults.world.network
    one, other = faults.two_hosts()
    both = faults.random.random() < 0.6
    faults.world.note(f"nothing gets from {one} to {other}{' and back' if both else ''}")
    network.cut(one, other, both=both)
    faults.later(0.1, 8.0, network.heal)


def _isolate(faults: Faults) -> None:
    node = faults.victim()
    if node is None:
        return
    network = faults.world.network
    faults.world.note(f"{node.host} is cut off from the others")
    for other in faults.nodes.values():
        if other is not node:
            network.cut(node.host, other.host)
    faults.later(0.5, 8.0, network.heal)


def _deafen(faults: Faults) -> None:
    """The controller and another broker cannot reach each other for longer than any request should
    wait. The store reaches both.
    """
    network = faults.world.network
    brokers = [each for each in faults.running() if each.ready and each.broker]
    deciding = [each for each in brokers if each.broker and each.broker.membership.controller]
    if network.blocked or not deciding or len(brokers) == 1:
        return
    one = deciding[0]
    other = faults.random.choice([each for each in brokers if each is not one])
    faults.world.note(f"{one.host} and {other.host} do not hear each other for long")
    network.cut(one.host, other.host)
    faults.later(16.0, 24.0, network.heal)


def _leave_behind(faults: Faults) -> None:
    """The others lose the connection to a broker; then they, or it, are killed when it
    reconnects.
    """
    node = faults.victim()
    if node is None:
        return
    world, network = faults.world, faults.world.network
    world.note(f"{node.host} falls behind")
    others = [other for other in faults.nodes.values() if other is not node]
    for other in others:
        network.cut(node.host, other.host)

    def come_back() -> None:
        network.heal()
        gone = [node] if faults.random.random() < 0.4 else others
        for each in gone:
            if each.life is not None and each.ready:
                each.kill()
                faults.start_again(each)

    faults.later(0.5, 4.0, come_back)


def _delay(faults: Faults) -> None:
    network = faults.world.network
    one, other = faults.two_hosts()
    seconds = faults.random.choice([0.01, 0.1, 1.0])
    faults.world.note(f"from {one} to {other} takes {seconds} s longer")
    network.delay_s[one, other] = seconds
    faults.later(0.5, 6.0, network.heal)


def _reset(faults: Faults) -> None:
    one, other = faults.two_hosts()
    faults.world.note(f"connections between {one} and {other} are reset")
    faults.world.network.reset(one, other)


def _slow_disk(faults: Faults) -> None:
    node = faults.victim()
    if node is None or node.life is None:
        return
    life = node.life
    life.disk_delay_s = faults.random.choice([0.02, 0.2, 1.0])
    faults.world.note(f"the disk of {node.host} is {life.disk_delay_s} s slower")
    faults.later(0.5, 5.0, lambda: setattr(life, "disk_delay_s", 0.0))


def _full_disk(faults: Faults) -> None:
    node = faults.victim()
    if node is not None:
        disk = node.disk
        disk.full = True
        faults.world.note(f"the disk of {node.host} is full")
        faults.later(0.2, 4.0, lambda: setattr(disk, "full", False))


def _clock(faults: Faults) -> None:
    node = faults.victim()
    if node is not None and node.life is not None:
        jump = faults.random.choice([-3_000_000, -5000, -200, 200, 5000, 3_000_000])
        if abs(node.life.clock_skew_ms + jump) > MOST_SKEW_MS:
            jump = -node.life.clock_skew_ms
        node.life.clock_skew_ms += jump
        faults.world.note(f"the clock of {node.host} jumps by {jump} ms")


def _expire(faults: Faults) -> None:
    node = faults.victim()
    if node is not None and node.life is not None:
        faults.world.note(f"the store ends the session of {node.host}")
        faults.world.store.expire_sessions(node.life)


def _no_store(faults: Faults) -> None:
    node = faults.victim()
    if node is not None:
        faults.world.note(f"{node.host} can't reach the store")
        faults.world.store.cut_off(node.host)
        faults.later(0.2, 6.0, faults.world.store.heal)


def _no_majority(faults: Faults) -> None:
    world = faults.world
    world.note("the store has lost its majority")
    world.store.lose_majority(node.host for node in faults.nodes.values())
    faults.later(0.5, 10.0, world.store.heal)


def _damage(faults: Faults, node: Node, damage: Damage) -> None:
    done = damage(node, faults.random, faults.damaged_topic)
    if done is not None:
        sentence, place = done
        faults.world.note(f"on {node.host} {sentence}")
        if place.topic:
            faults.damaged.add(place)


def _one_bad_disk(faults: Faults) -> Node | None:
    node = faults.victim()
    if node is not None and faults.bad_disk in (None, node):
        faults.bad_disk = node
        return node
    return None


def _damage_while_down(faults: Faults, damages: dict[str, Damage]) -> None:
    """Kill or stop the broker with the bad disk; its files change before it starts again."""
    node = _one_bad_disk(faults)
    if node is None:
        return
    damage = damages[faults.random.choice(sorted(damages))]
    life = node.life
    if faults.random.random() < 0.5:
        node.kill()
    else:
        node.terminate()

    def when_down() -> None:
        if node.life is None:
            _damage(faults, node, damage)
            faults.start_again(node)
        elif node.life is life:
            faults.later(0.1, 0.1, when_down)

    when_down()


def _damage_segments(faults: Faults) -> None:
    _damage_while_down(faults, SEGMENT_DAMAGES)


def _lose_alone(faults: Faults) -> None:
    """The other brokers die, so that the broker with the bad disk is in sync alone. Then it dies
    too, and its files are cut before it starts again.
    """
    node = _one_bad_disk(faults)
    if node is None:
        return
    others = [each for each in faults.nodes.values() if each is not node]
    for each in others:
        if each.life is not None:
            each.kill()

    def lose() -> None:
        if node.life is not None:
            node.kill()
        for _ in range(CUTS):
            _damage(faults, node, SEGMENT_DAMAGES["cut"])
        for each in (node, *others):
            faults.start_again(each)

    faults.later(1.5, 5.0, lose)


def _lose_unsynced(faults: Faults) -> None:
    """One broker stops, then the same other one always loses what it had not synced, then the third
    stops: a broker that has lost records comes back to a partition without a leader.
    """
    node = _one_bad_disk(faults)
    others = [each for each in faults.world.nodes.values() if each is not node]
    if node is None or not all(each.ready for each in others):
        return
    faults.random.shuffle(others)
    gone, last = others[0], others[1:]
    gone.terminate()

    def lose() -> None:
        if node.life is not None:
            node.kill(power_loss=True)
        faults.later(2.2, 3.0, end)

    def end() -> None:
        for each in last:
            if each.life is not None:
                each.terminate()
        faults.start_again(node)
        for each in others:
            faults.later(4.0, 9.0, partial(start, each))

    def start(each: Node) -> None:
        if each.life is None:
            each.start()

    faults.later(1.0, 2.0, lose)


def _restore_store(faults: Faults) -> None:
    """The coordination store is copied, brokers die and come back, and their leaderships move. Then
    all brokers die, and start with the older copy.
    """
    world, node = faults.world, faults.victim()
    if node is None or faults.copied or not all(each.ready for each in faults.nodes.values()):
        return
    if not all(work.settled for work in faults.workloads):
        return
    faults.copied = True
    path = f"{world.folder}/store"
    copy = world.store.copy(path)
    world.note("the store is copied")
    for work in faults.workloads:
        work.store_copied()

    def move() -> None:
        ready = [each for each in faults.nodes.values() if each.ready]
        if len(ready) == len(faults.nodes):
            _kill(faults)

    for moves in range(MOVES):
        faults.later(3.0 * moves, 3.0 * moves + 2.0, move)

    def restore() -> None:
        for each in faults.nodes.values():
            if each.life is not None:
                each.kill()
        world.note("the store is restored from the copy")
        world.store.restore(path, copy)
        faults.copied = False
        for work in faults.workloads:
            work.store_restored()
        for each in faults.nodes.values():
            faults.start_again(each)

    faults.later(3.0 * MOVES + 8.0, 3.0 * MOVES + 12.0, restore)


def _damage_index(faults: Faults) -> None:
    _damage_while_down(faults, INDEX_DAMAGES)


def _bit_rot(faults: Faults) -> None:
    node = _one_bad_disk(faults)
    if node is not None:
        for _ in range(faults.random.randint(1, 4)):
            _damage(faults, node, flip_bit)


FAULTS: dict[str, Fault] = {
    "kill": Fault(_kill, 4, False, "SIGKILL: what was written stays"),
    "power": Fault(_power_loss, 2, False, "the machine stops: what was not synced may be lost"),
    "restart": Fault(_restart, 2, False, "SIGTERM, then a start"),
    "freeze": Fault(_freeze, 2, False, "SIGSTOP for a while"),
    "partition": Fault(_partition, 3, False, "two hosts do not hear each other, or one the other"),
    "isolate": Fault(_isolate, 2, True, "a broker and all others do not hear each other"),
    "behind": Fault(_leave_behind, 3, True, "a broker falls behind, and those before it die"),
    "deaf": Fault(_deafen, 1, True, "the controller and a broker do not hear each other for long"),
    "delay": Fault(_delay, 1, False, "packets between two hosts are late"),
    "reset": Fault(_reset, 2, False, "connections between two hosts break"),
    "slow-disk": Fault(_slow_disk, 1, False, "calls that wait for the disk take long"),
    "full-disk": Fault(_full_disk, 1, False, "appends fail for a while"),
    "clock": Fault(_clock, 1, False, "a wall clock jumps"),
    "session": Fault(_expire, 2, True, "the store ends a living broker's session"),
    "store": Fault(_no_store, 1, True, "a broker can't reach the store"),
    "majority": Fault(_no_majority, 1, True, "no broker can reach the store, which ends nothing"),
    "index": Fault(_damage_index, 1, True, "the index is not what was written, after a stop"),
    "files": Fault(_damage_segments, 2, True, "segments are cut, gone or rotten, after a stop"),
    "rot": Fault(_bit_rot, 2, True, "a bit of a segment turns while its broker runs"),
    "alone": Fault(_lose_alone, 1, True, "who is in sync alone stops, and its segments are cut"),
    "unsynced": Fault(_lose_unsynced, 1, True, "one loses what it had not synced, others stop"),
    "restored": Fault(_restore_store, 1, True, "all brokers start with an older copy of the store"),
}
"""Every kind of fault by its name."""
DAMAGES = ("files", "rot", "alone")
"""Those that damage what is in the log. They keep company with few workloads."""
ON_REQUEST = ("alone", "deaf", "unsynced", "restored")
"""Those that strike only where they are asked for: they lose more than others may, or last longer.
"""
USUAL = tuple(kind for kind in FAULTS if kind not in ON_REQUEST)
"""The others."""
