"""Changes topics: first in the store, then the logs, then the image. Only one change at a time is
written to the store. Logs of several topics can be created and removed at the same time, because a
log dir may hang.

The rules are in state/metadata/topic_rules.py; this file executes changes on this broker.
api/topics/topics.py answers clients.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

from kstore.broker.coordination import config_nodes, znodes
from kstore.broker.coordination.partition_nodes import max_partition_epoch
from kstore.broker.coordination.store import NoNodeError, StoreError
from kstore.broker.runtime.slices import Slices
from kstore.broker.state.metadata.image import (
    MetadataImage,
    PartitionImage,
    TopicImage,
    new_partitions,
)
from kstore.broker.state.metadata.topic_rules import (
    NewPartitions,
    NewTopic,
    TopicError,
    check_configs,
    is_on,
    no_topic,
    plan_partitions,
    plan_topic,
)
from kstore.config.topic_configs import COUNT_REQUIRED, MIRROR, TOPIC_CONFIGS, least_producer_id
from kstore.errors import ErrorCode
from kstore.log.errors import LogError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.log_dirs.log_manager import LogManager
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.config import BrokerConfig

__all__ = [
    "OFFSETS_TOPIC",
    "SHARE_STATE_TOPIC",
    "TRANSACTION_TOPIC",
    "Topics",
    "offsets_topic_configs",
    "share_topic_configs",
    "transaction_topic_configs",
]

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

T = TypeVar("T")


def offsets_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """The settings of __consumer_offsets. Without compaction it would lose offsets."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config["offsets.topic.segment.bytes"]),
    }


def transaction_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """The settings of __transaction_state, as in Kafka."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
        "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
        "unclean.leader.election.enable": "false",
    }


def share_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """The settings of __share_group_state, as in Kafka: the share coordinator deletes superseded
    records.
    """
    return {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
        "retention.ms": "-1",
        "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
    }


INTERNAL_TOPIC_CONFIGS: dict[str, Callable[[BrokerConfig], dict[str, str]]] = {
    OFFSETS_TOPIC: offsets_topic_configs,
    TRANSACTION_TOPIC: transaction_topic_configs,
    SHARE_STATE_TOPIC: share_topic_configs,
}


class Topics:
    """Creates, expands, configures and deletes topics."""

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        replicas: LogManager,
        refuse_logs: Callable[[int], str | None],
        forget_offsets: Callable[[str, UUID], Awaitable[None]] | None = None,
    ) -> None:
        """``refuse_logs`` returns why this many more logs cannot be opened, or None.
        ``forget_offsets`` deletes the offsets of a deleted topic, if groups do not do this
        themselves.
        """
        self._refuse_logs = refuse_logs
        self._config = node.config
        self._store = store
        self._metadata = metadata
        self._replicas = replicas
        self._run_blocking = node.run_blocking
        self._forget_offsets = forget_offsets
        self._one_at_a_time = asyncio.Lock()
        """Held while a change is written to the store, not while logs are opened or removed."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unshown: dict[str, tuple[TopicImage, int]] = {}
        """Topics in the store whose logs are being created, and their first partition epoch."""
        self._newest_epoch = -1

    @property
    def _image(self) -> MetadataImage:
        return self._metadata.image

    def _publish(self, *topics: TopicImage, epoch: int = -1) -> None:
        """Publish topics in the image. ``epoch`` is their highest partition epoch."""
        self._show(self._image.with_topics(*topics), epoch)

    def _show(self, image: MetadataImage, epoch: int) -> None:
        """Publish an image that has all partitions up to a partition epoch, except for topics whose
        logs are still being created.
        """
        self._newest_epoch = max(self._newest_epoch, epoch)
        shown = min([self._newest_epoch, *(first - 1 for _, first in self._unshown.values())])
        self._metadata.publish(image.with_partition_epoch(shown))

    def _turn(self, name: str) -> asyncio.Lock:
        """The lock for changes of the topic with this name."""
        return self._turns.setdefault(name, asyncio.Lock())

    # ---- start ----

    def load(self) -> None:
        """Open the logs of the topics in the store, adopt topics that are only in the log dirs,
        complete deletions, and put aside logs of other topics with the same names.

        Runs before the broker serves, so it may block.
        """
        found = self._replicas.found()
        self._finish_deletions(found)
        self._finish_expansions()
        loaded: list[TopicImage] = []
        # Older versions of kstore stored that a partition in a failed log dir has no leader.
        for topic in map(_whole, znodes.read_topics(self._store)):
            for index, topic_id in found.pop(topic.name, {}).items():
                foreign = topic_id is not None and topic_id != topic.topic_id
                if foreign or index >= len(topic.partitions):
                    self._replicas.put_aside_now(TopicPartition(topic.name, index))
            loaded.append(self._as_it_is(self._open_all(topic)))
        for name, partitions in found.items():
            loaded.append(self._open_all(self._adopt(name, partitions)))
        self._publish(*loaded, epoch=max_partition_epoch(self._store))

    def _as_it_is(self, topic: TopicImage) -> TopicImage:
        """The topic, in which partitions in a failed log dir have no leader."""
        rows = tuple(
            _offline(each) if self._replicas.is_offline(TopicPartition(topic.name, i)) else each
            for i, each in enumerate(topic.partitions)
        )
        return topic if rows == topic.partitions else topic._replace(partitions=rows)

    def _finish_expansions(self) -> None:
        """Complete expansions that were interrupted when the broker ended."""
        for name, added in znodes.read_expansions(self._store).items():
            topic = znodes.read_topic(self._store, name)
            topic = znodes.begin_expansion(self._store, topic, added)
            znodes.add_partitions(self._store, _grown(topic, added), len(topic.partitions))

    def _finish_deletions(self, found: dict[str, dict[int, UUID | None]]) -> None:
        """Delete the logs of topics whose deletion was interrupted when the broker ended."""
        for name, deleted_id in znodes.read_deletions(self._store).items():
            for index, topic_id in list(found.get(name, {}).items()):
                if topic_id == deleted_id:
                    self._replicas.delete_now(TopicPartition(name, index))
                    del found[name][index]
            if not found.get(name, True):
                del found[name]
            znodes.finish_deletion(self._store, name)

    def _adopt(self, name: str, partitions: Mapping[int, UUID | None]) -> TopicImage:
        """Adopt a topic that an embedded log wrote without a broker."""
        node = self._replicas.node_id
        topic_id = next((known for known in partitions.values() if known is not None), None)
        images = (PartitionImage(node, 0, (node,), (node,)),) * (max(partitions) + 1)
        internal = INTERNAL_TOPIC_CONFIGS.get(name)
        configs = {} if internal is None else internal(self._config)
        topic = TopicImage(name, topic_id or uuid4(), images, configs)
        return znodes.create_topic(self._store, topic)

    def _open_all(self, topic: TopicImage) -> TopicImage:
        """Open the logs of a topic. If a log has a later leader epoch than the store (which was
        restored from an older copy, or the log was written without a broker), raise the store's.
        """
        entry = self._replicas.add_topic(topic)
        entry.count_required = is_on(topic.configs, COUNT_REQUIRED)
        entry.mirror = is_on(topic.configs, MIRROR)
        entry.least_producer_id = least_producer_id(topic.configs)
        log_config = self._replicas.log_config(topic.configs)
        later: dict[int, int] = {}
        for index, known in enumerate(topic.partitions):
            if self._replicas.is_offline(TopicPartition(topic.name, index)):
                self._replicas.add_offline(entry, index)
                continue
            opened = self._replicas.open_partition(entry, topic, index, log_config)
            opened.leader_epoch = max(opened.log.latest_epoch, known.leader_epoch)
            if opened.leader_epoch > known.leader_epoch:
                later[index] = opened.leader_epoch
        return znodes.raise_leader_epochs(self._store, topic, later) if later else topic

    def take_offline(self, places: Iterable[TopicPartition]) -> None:
        """Remove the leaders of these partitions from the image: their log dir has failed."""
        topics: dict[str, TopicImage] = {}
        for name, index in places:
            topic = topics.get(name) or self._image.topics.get(name)
            if topic is not None and index < len(topic.partitions):
                rows = list(topic.partitions)
                rows[index] = _offline(rows[index])
                topics[name] = topic._replace(partitions=tuple(rows))
        self._publish(*topics.values())

    # ---- changes ----

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> TopicImage:
        """Create a topic, or with ``validate_only`` only plan it. Raises TopicError."""
        async with self._turn(new.name):
            async with self._one_at_a_time:
                topic = self._planned(new)
                if validate_only:
                    return topic
                self._check_room(new.name, len(topic.partitions))
                topic = await self._in_store(lambda: znodes.create_topic(self._store, topic))
                self._unshown[new.name] = topic, topic.partitions[0].partition_epoch
            entry = self._replicas.add_topic(topic)
            entry.count_required = is_on(topic.configs, COUNT_REQUIRED)
            entry.mirror = is_on(topic.configs, MIRROR)
            entry.least_producer_id = least_producer_id(topic.configs)
            try:
                await self._open(topic, 0)
            except (LogError, OSError) as problem:  # too many open files, no space, ...
                del self._unshown[new.name]
                await self._undo(topic)
                why = f"The topic '{new.name}' can't be created: {problem}"
                raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, why) from problem
            finally:
                self._unshown.pop(new.name, None)
            self._publish(topic, epoch=topic.partitions[-1].partition_epoch)
            return topic

    def _planned(self, new: NewTopic) -> TopicImage:
        """Plan a new topic among those that exist or are being created. Raises TopicError."""
        configs = check_configs(new.configs)
        image = self._image
        if self._unshown:
            image = image.with_topics(*(topic for topic, _ in self._unshown.values()))
        assigned = plan_topic(
            image,
            new,
            default_partitions=self._config["num.partitions"],
            default_replicas=self._config["default.replication.factor"],
        )
        return TopicImage(new.name, uuid4(), new_partitions(assigned), configs)

    async def ensure(self, new: NewTopic) -> TopicImage:
        """The topic with this name, which is created if it is missing. Raises TopicError."""
        known = self._image.topics.get(new.name)
        if known is not None:
            return known
        try:
            return await self.create(new)
        except TopicError as problem:
            # Another request was faster.
            if problem.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return self._image.topics[new.name]
            raise

    async def add_partitions(self, new: NewPartitions, *, validate_only: bool = False) -> None:
        """Expand a topic to a larger number of partitions. Raises TopicError."""
        async with self._turn(new.name):
            async with self._one_at_a_time:
                added = plan_partitions(self._image, new)
                self.check_growth(new.name)
                if validate_only:
                    return
                self._check_room(new.name, len(added))
                grown = await self._expand(new, added)
                first = len(grown.partitions) - len(added)
                self._unshown[new.name] = grown, grown.partitions[first].partition_epoch
            await self._open_added(grown, first)

    async def _open_added(self, grown: TopicImage, first: int) -> None:
        try:
            await self._open(grown, first)
        finally:
            self._unshown.pop(grown.name, None)
        self._publish(grown, epoch=grown.partitions[-1].partition_epoch)

    def check_growth(self, name: str) -> None:
        """Raise TopicError if the topic's state does not allow an expansion."""

    async def _expand(self, new: NewPartitions, added: Sequence[tuple[int, ...]]) -> TopicImage:
        """Refuse producers with the old count, then write a topic with more partitions."""
        topic = self._image.topics[new.name]
        first = len(topic.partitions)
        self._check_online(topic, "grow")
        topic = await self._in_store(lambda: znodes.begin_expansion(self._store, topic, added))
        self._lead(topic, new.total_count)
        grown = _grown(topic, added)
        try:
            add = functools.partial(znodes.add_partitions, self._store, grown, first)
            return await self._in_store(add)
        except StoreError:
            self._lead(topic, first)  # the next attempt, or the next start, repeats it
            raise

    def _check_online(self, topic: TopicImage, what: str) -> None:
        offline = next((i for i, each in enumerate(topic.partitions) if each.leader < 0), None)
        if offline is not None:
            why = f"'{topic.name}' can't {what}: its partition {offline} is in a failed log dir."
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def _lead(self, topic: TopicImage, partition_count: int | None = None) -> None:
        """Pass new leader epochs, and the number of partitions that producers must know if it has
        changed, to the data plane. It then refuses producers with the old count (KIP-253).
        """
        entry = self._replicas.table.topic(topic.name.encode())
        assert entry is not None, topic.name
        if partition_count is not None:
            entry.partition_count = partition_count
        for partition, known in zip(entry.partitions, topic.partitions, strict=False):
            if partition is not None:
                partition.leader_epoch = known.leader_epoch
        self._publish(topic)

    async def raise_leader_epochs(self, name: str, least: Mapping[int, int]) -> None:
        """Raise the leader epochs of these partitions to at least these values. TopicError."""
        async with self._turn(name), self._one_at_a_time:
            topic = _whole(self._known(name))
            raised = functools.partial(znodes.raise_leader_epochs, self._store, topic, least)
            self._lead(self._as_it_is(await self._in_store(raised)))

    async def delete(self, name: str) -> None:
        """Delete a topic, its logs and its committed offsets. Raises TopicError if it does not
        exist.
        """
        async with self._turn(name):
            topic = self._known(name)
            if not self._config["delete.topic.enable"]:
                raise TopicError(
                    ErrorCode.TOPIC_DELETION_DISABLED,
                    f"'{name}' was not deleted: this broker has delete.topic.enable=false.",
                )
            await self._remove(topic)
        if self._forget_offsets is not None:
            await self._forget_offsets(name, topic.topic_id)

    def _check_room(self, name: str, partitions: int) -> None:
        why = self._refuse_logs(partitions)
        if why is not None:
            raise TopicError(ErrorCode.KAFKA_STORAGE_ERROR, f"No partitions for '{name}': {why}")

    async def _remove(self, topic: TopicImage) -> None:
        """Remove a topic from the store, the image and the log dirs. Its files are removed a little
        later, or at the next start.
        """
        name = topic.name
        async with self._one_at_a_time:
            epoch = await self._in_store(lambda: znodes.delete_topic(self._store, topic))
            self._replicas.table.remove_topic(name.encode())
            self._show(self._image.without_topics(name), epoch)
        keys = (TopicPartition(name, index) for index in range(len(topic.partitions)))
        try:
            self._replicas.removals.begin(await (await self._replicas.take_away(keys)))
            if not self._leaves_logs(topic):  # otherwise the next start deletes them
                await self._in_store(lambda: znodes.finish_deletion(self._store, name))
        except (LogError, OSError, StoreError) as problem:
            why = f"the next start completes the deletion of the topic {name}: {problem}"
            self._replicas.report(why)

    _undo = _remove

    def _leaves_logs(self, topic: TopicImage) -> bool:
        """Whether a deleted topic has logs that only the next start can delete."""
        return False

    async def set_configs(
        self, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the settings of a topic in the store and apply them to its open logs. Raises
        TopicError.
        """
        async with self._turn(name), self._one_at_a_time:
            topic = self._known(name)
            checked = check_configs(configs)
            if validate_only:
                return
            try:
                await self._in_store(lambda: config_nodes.set_configs(self._store, name, checked))
            except NoNodeError:  # another broker has deleted it
                raise no_topic(name) from None
            topic = self._known(name)  # the topic may have changed meanwhile
            self._configure(topic, checked)
            self._publish(topic._replace(configs=checked))

    async def take_over_defaults(self, changed: frozenset[str]) -> None:
        """Apply changed defaults of topics to every open log."""
        synonyms = {name for row in TOPIC_CONFIGS.values() for name, _ in row.synonyms}
        if not changed & synonyms:
            return
        async with self._one_at_a_time:
            slices = Slices()
            for topic in list(self._image.topics.values()):
                self._configure(topic, topic.configs)
                await slices.breathe()

    def configure(self, topic: TopicImage) -> None:
        """Apply a topic's settings to its logs on this broker."""
        self._configure(topic, topic.configs)

    def _configure(self, topic: TopicImage, configs: Mapping[str, str]) -> None:
        log_config = self._replicas.log_config(configs)
        entry = self._replicas.table.topic(topic.name.encode())
        if entry is None:
            return
        entry.count_required = is_on(configs, COUNT_REQUIRED)
        entry.mirror = is_on(configs, MIRROR)
        entry.least_producer_id = least_producer_id(configs)
        for partition in entry.partitions:
            if partition is None or partition.log is None:
                continue  # the partition is on another broker
            if partition.index < len(topic.partitions):
                count = len(topic.partitions[partition.index].replicas)
                self._replicas.configure(partition, log_config, count)

    def _known(self, name: str) -> TopicImage:
        topic = self._image.topics.get(name)
        if topic is None:
            raise no_topic(name)
        return topic

    async def _in_store(self, call: Callable[[], T]) -> T:
        return await self._run_blocking(call)

    async def _open(self, topic: TopicImage, first: int) -> None:
        """Open the logs of a topic's partitions from index ``first`` on, in threads."""
        entry = self._replicas.table.topic(topic.name.encode())
        assert entry is not None, topic.name
        indexes = range(first, len(topic.partitions))
        config = self._replicas.log_config(topic.configs)
        await self._replicas.open_partitions(entry, topic, indexes, config)


def _offline(partition: PartitionImage) -> PartitionImage:
    return partition._replace(leader=-1, offline=partition.replicas)


def _whole(topic: TopicImage) -> TopicImage:
    """The topic as the store should have it, with leaders for partitions in a failed log dir: at
    the next start the log dir may work again.
    """
    return topic._replace(
        partitions=tuple(
            each._replace(leader=each.replicas[0], offline=()) if each.leader < 0 else each
            for each in topic.partitions
        )
    )


def _grown(topic: TopicImage, added: Sequence[tuple[int, ...]]) -> TopicImage:
    """The topic with additional partitions, led by their first replicas."""
    # Clients ignore a leader epoch that is smaller than the one they know, and partitions with
    # these numbers may have existed before a contraction.
    epoch = max(each.leader_epoch for each in topic.partitions)
    new = tuple(each._replace(leader_epoch=epoch) for each in new_partitions(added))
    return topic._replace(partitions=topic.partitions + new)
