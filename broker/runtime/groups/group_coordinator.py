"""Runs the group shards, one per partition of __consumer_offsets (group_partition.py). This file
finds the shard of a request, and has what the shards share.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kstore.broker.runtime.coordinators.runtime import Coordinator
from kstore.broker.runtime.groups.group_partition import REBALANCES, GroupPartition, Requester
from kstore.broker.runtime.groups.regex_rights import RegexRights
from kstore.broker.runtime.groups.topic_matches import TopicMatches
from kstore.broker.runtime.topics.topics import OFFSETS_TOPIC, offsets_topic_configs
from kstore.broker.state.distribution import Distribution
from kstore.broker.state.groups.coordinator.contraction import groups_behind
from kstore.broker.state.groups.coordinator.coordinator_shard import GroupShard
from kstore.broker.state.groups.result import GroupContext, Token
from kstore.broker.state.groups.settings import GroupSettings
from kstore.broker.state.work import Work
from kstore.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from uuid import UUID

    from kstore.broker.runtime.coordinators.partition_writer import PartitionWriter
    from kstore.broker.runtime.coordinators.topic import CoordinatorTopic
    from kstore.broker.runtime.groups.expansion_gates import ExpansionGates
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.node import Node
    from kstore.broker.state.groups.timers import TimerEvent
    from kstore.broker.state.metadata.image import TopicImage
    from kstore.broker.state.metadata.retirement import Retirement
    from kstore.broker.state.metadata.topic_rules import NewTopic
    from kstore.broker.state.security.authorizer import Authorizer
    from kstore.config import BrokerConfig
    from kstore.protocol.schema import Message
    from kstore.types import TopicPartition

__all__ = ["OFFSETS_TOPIC", "GroupCoordinator"]

T = TypeVar("T")
LOGGER = logging.getLogger(__name__)


class GroupCoordinator(Coordinator[GroupPartition]):
    """All group partitions of this broker, and what they share."""

    def __init__(
        self,
        node: Node,
        topic: CoordinatorTopic,
        writer: PartitionWriter,
        configs: DynamicConfigs,
        gates: Lazy[ExpansionGates],
        authorizer: Authorizer | None,
    ) -> None:
        super().__init__(topic, writer, lambda place: GroupPartition(self, place))
        self.settings = _settings(node.config)
        self.commit_timeout_s: float = node.config["offsets.commit.timeout.ms"] / 1000
        """How long a response waits for the followers."""
        self.regex_rights = RegexRights(authorizer)
        self.topic_matches = TopicMatches()
        self.commits_refused: Counter[int] = Counter()
        """How many partitions of commits by their owners were refused, by error code."""
        self.rebalances: Mapping[str, Distribution] = {
            kind: Distribution() for kind in REBALANCES.values()
        }
        """How many new epochs groups have had, by kind of group."""
        self.has_ended: Callable[[TopicPartition, int], bool] = lambda place, producer_id: False
        """See PartitionHost."""
        self._node = node
        self._configs = configs
        self._gates = gates
        """Holds partitions back. Created when a topic needs it."""
        self._line = asyncio.Lock()
        self._in_line = 0
        """Requests that are not decided yet. Later requests must not overtake them."""
        self._expiry: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Called when groups exist: begins to check periodically for offsets past their
        retention.
        """
        self._schedule_expiry()

    async def close(self) -> None:
        """Stop loading and timers; answer all parked requests."""
        if self._expiry is not None:
            self._expiry.cancel()
        await super().close()

    def new_topic(self) -> NewTopic:
        """__consumer_offsets as the settings specify it."""
        return self.topic.as_configured(
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
            offsets_topic_configs(self._node.config),
        )

    def answer(
        self, group_id: str, request: Message, ctx: Requester
    ) -> Message | Awaitable[Message]:
        """Let the group's shard answer: at once, if the request does not have to wait. Requests are
        decided in the order of their arrival, so of two commits on one connection the second one
        applies. Raises KafkaError.
        """
        if self._in_line or self.topic.image.ordered or not self._by_index:
            return self._answer_later(group_id, request, ctx)
        return self.find(group_id).answer(request, ctx)

    async def handle(self, group_id: str, request: Message, ctx: Requester) -> Message:
        """As `answer`, but waits for the result."""
        answer = self.answer(group_id, request, ctx)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _answer_later(self, group_id: str, request: Message, ctx: Requester) -> Message:
        async with self._turn():
            partition = await self.partition(group_id)
            if self.topic.image.ordered:  # a group gets only partitions that it may read (KIP-253)
                await self._gates().refresh()
            answer = partition.answer(request, ctx)
        return await answer if isinstance(answer, Awaitable) else answer

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for the earlier requests."""
        self._in_line += 1
        try:
            async with self._line:
                yield
        finally:
            self._in_line -= 1

    async def read(self, group_id: str, look: Callable[[GroupShard], Work[T]]) -> T:
        """The result of ``look`` for the group's shard, once its state can no longer be lost.
        Raises KafkaError.
        """
        async with self._turn():
            partition = await self.loaded_partition(group_id)
            view = partition.view(look)
        shown = await view.wait()
        await partition.settled()
        return shown

    async def apply_event(self, group_id: str, event: TimerEvent) -> None:
        """Apply an external event to a group. Returns once the result can no longer be lost. Raises
        KafkaError.
        """
        async with self._turn():
            partition = await self.loaded_partition(group_id)
            step = partition.apply_event(event)
        if not step.done:
            await step.wait()
        step.result()
        await partition.settled()

    async def behind(
        self, name: str, topic_id: UUID, requested: Retirement
    ) -> tuple[list[int], list[str]]:
        """The partitions that this broker serves, and the groups in them that read remaining
        partitions of a contraction and have not committed the retired ones to their end. Raises
        KafkaError if this is not known yet.
        """
        self._shrinking(name, topic_id, requested)
        await self._gates().refresh()
        behind: list[str] = []
        async with self._turn():
            served = list(self.partitions)
            views = []
            for partition in served:
                partition.check()
                topic = self._shrinking(name, topic_id, requested)
                look = partial(groups_behind, image=self.topic.image, topic=topic)
                views.append(partition.view(look))
        for partition, view in zip(served, views, strict=True):
            behind += await view.wait()
            await partition.settled()
        return [partition.place.partition for partition in served], behind

    def _shrinking(self, name: str, topic_id: UUID, requested: Retirement) -> TopicImage:
        """The topic, if this broker knows of its contraction. Otherwise raises KafkaError."""
        topic = self.topic.image.topics.get(name)
        if topic is None or topic.topic_id != topic_id or not requested.is_same(topic.retirement):
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not known to be shrinking"
            )
        return topic

    async def partition(self, group_id: str) -> GroupPartition:
        """The partition of a group. A single broker creates the topic if it does not exist yet.
        Raises KafkaError.
        """
        if self.topic.made_by_requests and not self._by_index:
            await self.ensure()
        return self.find(group_id)

    async def loaded_partition(self, group_id: str) -> GroupPartition:
        """As `partition`, but raises KafkaError until it is loaded."""
        partition = await self.partition(group_id)
        partition.check()
        return partition

    async def forget_topic(self, name: str, first: int = 0) -> None:
        """Delete the offsets of groups in a deleted topic, or in its deleted partitions from index
        ``first`` on.
        """
        await self.wait_loaded()
        for partition in self.partitions:
            try:
                await partition.forget_topic(name, first)
            except KafkaError as error:
                LOGGER.error("%s: offsets of %s were not deleted: %s", partition.place, name, error)

    def forget_soon(self, name: str, first: int = 0) -> None:
        """As `forget_topic`, in the background."""
        self.spawn(self.forget_topic(name, first))

    def transaction_ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """Called when the marker of a transaction was appended to a partition of
        __consumer_offsets.
        """
        found = self._by_index.get(index)
        if found is not None:
            found.transaction_ended(producer_id, committed=committed)

    def now_ms(self) -> int:
        """Wall time."""
        return self._node.now_ms()

    def context(
        self,
        group_id: str,
        token: Token = None,
        requested: Requester | None = None,
        new_id: str = "",
    ) -> GroupContext:
        """What a shard needs to know about its environment to decide about one group."""
        configs, image = self._configs.group(group_id), self.topic.image
        if requested is None:
            return GroupContext(self._node.now_ms(), new_id, configs, token, image=image)
        return GroupContext(
            self._node.now_ms(),
            new_id,
            configs,
            token,
            requested.api_version,
            requested.client_id or "",
            f"/{requested.client_host}",
            requested.extended,
            image,
        )

    def found(
        self, group_id: str, regexes: Mapping[str, frozenset[str]]
    ) -> Mapping[str, frozenset[str]]:
        """The topics that a group's regular expressions match now. ``known``: what each matched
        before.
        """
        return {
            regex: self.regex_rights.describable(
                group_id, regex, self.topic_matches.matched(regex, self.topic.image), known
            )
            for regex, known in regexes.items()
        }

    def _schedule_expiry(self) -> None:
        interval_ms = self._node.config["offsets.retention.check.interval.ms"]
        self._expiry = self.loop.call_later(interval_ms / 1000, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiry()
        self.spawn(self._expire_all())

    async def _expire_all(self) -> None:
        for partition in self.partitions:
            try:
                await partition.expire_offsets()
            except KafkaError as error:
                LOGGER.error("%s: expired records were not deleted: %s", partition.place, error)


def _settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        share_max_size=config["group.share.max.size"],
        streams_max_size=config["group.streams.max.size"],
        consumer_max_size=config["group.consumer.max.size"],
        consumer_assignors=tuple(config["group.consumer.assignors"]),
        consumer_migration_policy=config["group.consumer.migration.policy"].lower(),
        consumer_regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
        commit_requires_assignment=config["kstore.commit.require.assignment"],
        check_invariants=config["kstore.check.invariants"],
    )
