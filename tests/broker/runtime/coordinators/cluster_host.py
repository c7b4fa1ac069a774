"""A broker of a cluster for tests of coordinators, on real logs. The test plays the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import kstore
from kstore.broker.api import RequestContext
from kstore.broker.api.requests.error_responses import failed
from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
from kstore.broker.runtime.coordinators.runtime import watch_leadership
from kstore.broker.runtime.coordinators.topic import ClusterTopic
from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
from kstore.broker.runtime.lazy import Lazy
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kstore.broker.runtime.transactions.marker_sender import MarkerSender
from kstore.broker.runtime.transactions.markers import Markers
from kstore.broker.runtime.transactions.transaction_coordinator import TransactionCoordinator
from kstore.broker.state.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from kstore.broker.state.metadata.image import TopicImage as Topic
from kstore.config import BrokerConfig
from kstore.errors import ErrorCode, KafkaError
from kstore.log import LogConfig
from kstore.protocol.transactions.transactions import WriteTxnMarkersRequest
from kstore.types import TopicPartition

ASKED = RequestContext(0, 3, 0, "client", "127.0.0.1", "c", "PLAINTEXT", "User:ANONYMOUS")
HERE, THERE = 1, 2
GROUPS = TopicPartition(OFFSETS_TOPIC, 0)
STATE = TopicPartition(TRANSACTION_TOPIC, 0)
DATA = TopicPartition("t", 0)
SMALL_GROUPS = {
    "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1",
    "group.max.size": "100", "group.consumer.max.size": "100", "group.streams.max.size": "100",
    "kstore.check.invariants": "true",
}  # fmt: skip
SETTINGS = BrokerConfig.load(overrides=SMALL_GROUPS | {"kstore.flush.policy": "interval"})


class Replicated:
    """A partition led by this broker. The test moves its high watermark."""

    replication: bool | None = True

    def __init__(self, log: Any) -> None:
        self.log = log
        self.entry = SimpleNamespace(mirror=False)
        self.online = False
        self.ending: dict[int, int] | None = None
        self.appends_queued = 0
        self.index = 0
        self.leader_epoch = 0
        self.high_watermark = 0
        self.waits: list[tuple[int, Callable[[int], object]]] = []

    @property
    def log_end_offset(self) -> int:
        return int(self.log.log_end_offset)

    def may_append_now(self, batch: bytes) -> bool:
        return True

    def append_batches(self, batch: bytes) -> tuple[int, int, int, int]:
        info = self.log.append_batches(batch, leader_epoch=0, origin="coordinator")
        return 0, info.base_offset, info.last_offset, info.last_offset + 1

    def when_committed(self, end_offset: int, callback: Callable[[int], object]) -> None:
        self.waits.append((end_offset, callback))

    def advance(self, to: int | None = None) -> None:
        self.high_watermark = max(self.high_watermark, self.log_end_offset if to is None else to)
        reached = [wait for wait in self.waits if wait[0] <= self.high_watermark]
        self.waits = [wait for wait in self.waits if wait not in reached]
        for _, callback in reached:
            callback(ErrorCode.NONE)

    def stop(self) -> None:
        self.online = False
        waits, self.waits = self.waits, []
        for _, callback in waits:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Host:
    """A broker of a cluster. The test plays the controller and the other broker."""

    def __init__(self, path: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.node_id = HERE
        self.config = SETTINGS
        self.sure = True
        """Nobody can have been elected in this broker's place."""
        self.log_dir = kstore.open_log_dir(path)
        self.image = MetadataImage("cluster")
        for node_id in (HERE, THERE):
            broker = BrokerImage(node_id, (Endpoint("PLAINTEXT", "h", node_id),))
            self.image = self.image.with_broker(broker)
        self.places = {place: self._replicated(place) for place in (GROUPS, STATE, DATA)}
        self.asked: list[WriteTxnMarkersRequest] = []
        self.answers: list[int | KafkaError] = []
        self.stored = True
        """The store has every partition."""
        self.writer = PartitionWriter(self, self, self)
        self.groups = Lazy(self._make_groups, lambda made: made.start())
        self.transactions = Lazy(self._make_transactions, lambda made: made.start())
        self._note = watch_leadership(
            {OFFSETS_TOPIC: self.groups, TRANSACTION_TOPIC: self.transactions}
        )

    def _topic(self, name: str) -> ClusterTopic:
        return ClusterTopic(name, self, self, self, self, lambda: self.sure)

    def _make_groups(self) -> GroupCoordinator:
        topic = self._topic(OFFSETS_TOPIC)
        return GroupCoordinator(self, topic, self.writer, self, self, None)

    def _make_transactions(self) -> TransactionCoordinator:
        markers = Markers(self, self, self.writer, lambda *ended: None)
        sender = MarkerSender(self, self, self, markers, lambda: self)
        ids: Any = SimpleNamespace(is_ready=True, offered=7, least=0, given=lambda _: None)
        topic = self._topic(TRANSACTION_TOPIC)
        return TransactionCoordinator(self, topic, self.writer, ids, sender)

    def _replicated(self, place: TopicPartition) -> Replicated:
        config = LogConfig.from_topic_configs({"cleanup.policy": "compact"})
        self.tell(place, THERE)
        return Replicated(self.log_dir.log(*place, config=config))

    def topic(self, name: bytes) -> Any:
        found = [item for place, item in self.places.items() if place.topic.encode() == name]
        return SimpleNamespace(partitions=found)

    def tell(self, place: TopicPartition, leader: int) -> None:
        """Apply what UpdateMetadata says."""
        partition = PartitionImage(leader, 0, (HERE, THERE), (HERE, THERE))
        self.image = self.image.with_topics(
            Topic(place.topic, UUID(bytes=place.topic[:16].ljust(16).encode()), (partition,), {})
        )

    def lead(self, place: TopicPartition) -> None:
        """Apply what LeaderAndIsr does."""
        partition = self.places[place]
        partition.leader_epoch += 1
        partition.online = True
        self.tell(place, HERE)
        self._note(place, True, partition.leader_epoch)

    def follow(self, place: TopicPartition, keeps: int | None = None) -> None:
        """Another broker leads; it has the records below ``keeps``."""
        partition = self.places[place]
        partition.stop()
        self.tell(place, THERE)
        self._note(place, False, partition.leader_epoch)
        if keeps is not None:
            partition.log.truncate(keeps)

    def partition(self, topic: bytes, index: int) -> Any:
        return self.places[TopicPartition(topic.decode(), index)]

    def group(self, group_id: str) -> dict[str, Any]:
        return {}

    def exists(self, path: str) -> bool:
        return self.stored

    async def ask(self, node_id: int, request: Any, timeout_s: float) -> Any:
        assert node_id == THERE
        await asyncio.sleep(0)
        self.asked.append(request)
        code = self.answers.pop(0)
        if isinstance(code, KafkaError):
            raise code
        return failed(request, 1, code, "")

    async def run_blocking(self, call: Callable[[], Any]) -> Any:
        return call()

    def now_ms(self) -> int:
        return 1_000_000


def run(path: Path, story: Callable[[Host], Awaitable[None]]) -> None:
    """Run a scenario on a broker whose logs are in ``path``."""

    async def told() -> None:
        host = Host(path)
        try:
            await asyncio.wait_for(story(host), 60)
        finally:
            for coordinator in (host.transactions.made, host.groups.made):
                if coordinator is not None:
                    await coordinator.close()
            host.log_dir.close()

    asyncio.run(told())
