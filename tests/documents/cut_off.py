"""A cluster of kstore brokers. Each broker can be cut off from the requests of the others, while
clients reach it and it reaches the others: it continues with its last metadata. That is the lagging
broker of KIP-232, and the replaced leader of KIP-359.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import Producer
from kstore.clients.io.loop_thread import LoopThread
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.conformance.broker_process import free_ports
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import KstoreCluster

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
}


class Gate:
    """A port that leads to another one, unless it is shut."""

    def __init__(self, thread: LoopThread, port: int, target: int) -> None:
        self._thread = thread
        self._port = port
        self._target = target
        self._server: asyncio.AbstractServer | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    def open(self) -> None:
        """Let everything through from now on."""
        self._thread.run(self._open())

    def shut(self) -> None:
        """End all connections, and refuse new ones."""
        self._thread.run(self._shut())

    async def _open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._lead, "127.0.0.1", self._port)

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.close()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._writers -= pair


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class CutOffCluster(KstoreCluster):
    """Brokers 1 to 3; `cut` is about one that is not the controller, which `victim` names."""

    def __init__(self, folder: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        self._thread = LoopThread()
        self._gates: dict[int, Gate] = {}
        super().__init__(folder, 3, overrides=SETTINGS | dict(overrides or {}))

    def add(self, node_id: int, overrides: Mapping[str, str] | None = None) -> KstoreBroker:
        """See KstoreCluster; the other brokers connect through a gate."""
        broker = super().add(node_id, overrides)
        inside = free_ports(2)
        outside = f"PLAINTEXT://{broker.bootstrap}"
        broker.overrides["listeners"] = f"{outside},INTERNAL://127.0.0.1:{inside}"
        broker.overrides["advertised.listeners"] = f"{outside},INTERNAL://127.0.0.1:{inside + 1}"
        self._gates[node_id] = Gate(self._thread, inside + 1, inside)
        self._gates[node_id].open()
        return broker

    def cut(self, node_id: int) -> None:
        """From now on, requests of the other brokers do not reach the broker."""
        self._gates[node_id].shut()

    def heal(self, node_id: int) -> None:
        self._gates[node_id].open()

    @contextlib.contextmanager
    def cut_off(self, node_id: int) -> Iterator[None]:
        """`cut` and `heal`; all brokers say the same again when this ends."""
        self.cut(node_id)
        try:
            yield
        finally:
            self.heal(node_id)
            until(self.is_same_everywhere, "all brokers say the same")

    def is_same_everywhere(self) -> bool:
        """Whether all brokers name the same topics, leaders and epochs."""
        views = []
        for node_id in self.brokers:
            with self.admin(node_id) as admin:
                found = admin.describe_topics()
            views.append(
                [(t.name, [(p.leader, p.leader_epoch) for p in t.partitions]) for t in found]
            )
        return views[1:] == views[:-1]

    def new_topic(self, *replicas: int) -> str:
        """A topic with one partition on these brokers, the first of which leads; all know it."""
        topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.create_topic(topic, replicas={0: replicas})
        for node_id in self.brokers:
            until(partial(self._leads, topic, replicas[0], node_id), f"{node_id} knows {topic}")
        return topic

    def _leads(self, topic: str, leader: int, asked: int) -> bool:
        return self.leader(topic, 0, asked) == leader

    def victim(self) -> tuple[int, int, int]:
        """A broker that is not the controller, and the two others."""
        controller = self.wait_for_controller()
        lagging = next(i for i in self.brokers if i != controller)
        first, second = (i for i in self.brokers if i != lagging)
        return lagging, first, second

    def lead(self, topic: str, leader: int, *, asked: int) -> None:
        """Make a replica the leader of partition 0: it is put first, and the first one elected.
        `asked` is a broker that is not cut off.
        """
        row = self.topic(topic, asked).partitions[0]
        replicas = [leader, *(i for i in row.replicas if i != leader)]
        with self.admin(asked) as admin:
            admin.alter_partition_reassignments({TopicPartition(topic, 0): replicas})
            until(
                lambda: not admin.list_partition_reassignments(),
                f"{topic} has its replicas in another order",
            )
            admin.elect_leaders([TopicPartition(topic, 0)])
        until(partial(self._leads, topic, leader, asked), f"{leader} leads {topic}")

    def __exit__(self, *given: Any) -> None:
        for gate in self._gates.values():
            gate.open()  # a clean stop asks the others
        super().__exit__(*given)
        self._thread.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutOffCluster]:
    """One for the tests of a file, whose replicas may lag for a minute."""
    folder = tmp_path_factory.mktemp("cluster")
    with CutOffCluster(folder, overrides={"replica.lag.time.max.ms": "60000"}) as running:
        yield running


def write(cluster: CutOffCluster, asked: int, topic: str, *values: bytes) -> None:
    """Records that all in-sync replicas have, by kstore's producer."""
    with Producer(cluster.brokers[asked].bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=0).result()
