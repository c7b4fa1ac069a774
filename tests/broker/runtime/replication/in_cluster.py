"""A broker of a cluster whose test plays the controller; a double fetches from leaders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from kstore.broker.compose.cluster_broker import ClusterBroker
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.state.metadata.image import Endpoint
from kstore.config import BrokerConfig
from kstore.protocol.controller.broker_requests import (
    LeaderAndIsrPartition,
    UpdateMetadataPartition,
)
from kstore.types import TopicPartition
from tests.plain_messages import Ask, error_codes

ME, OTHER, THIRD = 1, 2, 3
BROKER_EPOCH = 40
ID = uuid4()
T0 = TopicPartition("t", 0)


def on_a_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    return lambda tmp_path: asyncio.run(test(tmp_path))


class Fetchers:
    """What is followed: partition to leader and epoch."""

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, tuple[int, int]] = {}

    def follow(self, place: TopicPartition, partition: Any, leader: int, epoch: int) -> None:
        self.followed[place] = (leader, epoch)

    def stop(self, place: TopicPartition) -> None:
        self.followed.pop(place, None)

    def is_settled(self, place: TopicPartition) -> bool:
        return True

    async def settle(self, place: TopicPartition) -> None: ...

    def close(self) -> None: ...


class InCluster(ClusterBroker):
    """A broker with a double as its fetchers."""

    fetchers: Any = None


@asynccontextmanager
async def opened(folder: Path, **settings: str) -> AsyncIterator[InCluster]:
    given = {
        "node.id": str(ME),
        "log.dirs": str(folder / "data"),
        "kstore.coordination.dir": str(folder / "store"),
        "kstore.log.dir.probe.ms": "0",  # small appends finish at once, including the first
    }
    config = BrokerConfig.load(overrides=given | settings)
    broker = InCluster(config, asyncio.get_running_loop(), None, lambda *told: None)
    broker.fetchers = Lazy(Fetchers)
    broker.open((Endpoint("PLAINTEXT", "localhost", 9092),))
    member: Any = broker.membership
    member.broker_epoch, member.controller_id = BROKER_EPOCH, OTHER
    try:
        yield broker
    finally:
        broker.close()


SAID = {"controller_id": OTHER, "controller_epoch": 5, "broker_epoch": BROKER_EPOCH}
"""What each request of the controller says."""


def isr(*rows: Any, topic_id: UUID = ID, name: str = "t", **fields: Any) -> Any:
    topics = [{"topic_name": name, "topic_id": topic_id, "partition_states": list(rows)}]
    return Ask.LeaderAndIsr(topic_states=topics if rows else [], **(SAID | fields))


def state(
    leader: int = ME, epoch: int = 0, version: int = 0, index: int = 0,
    replicas: tuple[int, ...] = (ME, OTHER), in_sync: tuple[int, ...] = (ME, OTHER),
) -> LeaderAndIsrPartition:  # fmt: skip
    return LeaderAndIsrPartition(
        partition_index=index, leader=leader, leader_epoch=epoch, state_version=version,
        replicas=list(replicas), isr=list(in_sync),
    )  # fmt: skip


def stop(index: int = 0, epoch: int = 9, *, delete: bool = True, **fields: Any) -> Any:
    row = {"partition_index": index, "leader_epoch": epoch, "delete_partition": delete}
    topics = [{"topic_name": "t", "topic_id": ID, "partition_states": [row]}]
    return Ask.StopReplica(**(SAID | {"topic_states": topics} | fields))


def metadata(
    *rows: Any, topic_id: UUID = ID, alive: tuple[int, ...] = (ME, OTHER), **fields: Any
) -> Any:
    topics = [{"topic_name": "t", "topic_id": topic_id, "partition_states": list(rows)}]
    brokers = [
        {"id": node, "endpoints": [{"port": node, "host": "h", "listener": "PLAINTEXT"}],
         "epoch": node * 10}
        for node in alive
    ]  # fmt: skip
    said = SAID | {"topic_states": topics if rows else [], "live_brokers": brokers}
    return Ask.UpdateMetadata(**(said | fields))


def known(leader: int, epoch: int = 0, index: int = 0, **fields: Any) -> UpdateMetadataPartition:
    return UpdateMetadataPartition(
        partition_index=index, leader=leader, leader_epoch=epoch,
        **({"replicas": [ME, OTHER], "isr": [ME, OTHER]} | fields),
    )  # fmt: skip


def codes(response: Any) -> list[int]:
    """Of the partitions, in LeaderAndIsr's response or StopReplica's."""
    rows = response.topics if hasattr(response, "topics") else response.partition_errors
    return error_codes(rows)
