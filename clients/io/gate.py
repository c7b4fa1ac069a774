"""KIP-253 in the consumer: looks up what core/group/expansion_gate needs, and releases
partitions.

It runs only while a partition is held back. The group's positions arrive with heartbeats, which the
group client sends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kstore.clients.core.consumer.offset_epoch import partition_epoch_of
from kstore.clients.core.group.expansion_gate import ExpansionGate, PriorEpoch
from kstore.clients.io.cluster import GROUP
from kstore.clients.io.group_offsets import LANE
from kstore.clients.io.list_offsets import EpochEnd, FoundOffset, epoch_ends, list_offsets_once
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.logs.leader_epoch_for_partition import (
    LeaderEpochForPartitionRequest,
    LeaderEpochForPartitionResponse,
    LeaderEpochForPartitionTopic,
)
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.clients.core.consumer.subscription import SubscriptionState
    from kstore.clients.io.cluster import ClusterClient
    from kstore.protocol.groups.classic import PositionTopic

__all__ = ["ExpansionGates"]

_log = logging.getLogger("kstore.clients.group")
EARLIEST = -2
READ_UNCOMMITTED = 0
Committed = Callable[
    [Collection[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata | None]]
]


class ExpansionGates:
    """The gates of one consumer. ``committed`` asks the coordinator; ``hurry`` sends the next
    heartbeat at once; ``positions`` are the consumer's own, as of its last poll.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        subscription: SubscriptionState,
        group_id: str,
        backoff_ms: int,
        committed: Committed,
        hurry: Callable[[], None],
    ) -> None:
        self.gate = ExpansionGate()
        self._cluster = cluster
        self._subscription = subscription
        self._group_id = group_id
        self._backoff_s = backoff_ms / 1000
        self._committed = committed
        self._hurry = hurry
        self._task: asyncio.Task[None] | None = None

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold newly assigned partitions until it is known that they have no prior partitions, or
        that these were read. The first partition of a topic has none.
        """
        added = [tp for tp in partitions if tp.partition > 0]
        self.gate.hold_back(added)
        for tp in added:
            self._subscription.hold_back(tp)
        if added and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._look_up())

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions were revoked."""
        self.gate.drop(partitions)

    def on_positions(self, topics: Iterable[PositionTopic]) -> None:
        """The group's positions from a heartbeat. Positions in another topic of the same name do
        not count (KIP-232).
        """
        rows = (
            (TopicPartition(topic.topic, row.partition), row)
            for topic in topics
            for row in topic.partitions
        )
        self.read_up_to(
            {tp: row.position for tp, row in rows if self._is_meant(tp, row.partition_epoch)}
        )

    def read_up_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """The positions that members of the group need."""
        self.gate.read_up_to(positions)
        for tp in self.gate.open_gates():
            self._subscription.let_go(tp)

    async def close(self) -> None:
        """Stop all lookups."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def is_known_to(self, node_id: int) -> bool:
        """Whether the coordinator knows prior partitions, and passes positions on."""
        connection = await self._cluster.connection(node_id, lane=LANE)
        return connection.versions.has("kstore.kip253")

    async def _look_up(self) -> None:
        """Repeat until all thresholds are known; each pass requests what is still missing."""
        gate = self.gate
        while unknown := gate.without_priors() | gate.without_thresholds():
            waiting = gate.needed()
            try:
                await self._ask_priors()
                await self._ask_thresholds()
            except KafkaError as error:
                _log.debug("partitions are still held back: %s", error)
                self._cluster.forget_coordinator(GROUP, self._group_id)
                self._cluster.want_refresh()
            self.read_up_to({})
            if gate.needed() - waiting:
                self._hurry()
            if unknown == gate.without_priors() | gate.without_thresholds():
                await asyncio.sleep(self._backoff_s)

    # Prior partitions.

    async def _ask_priors(self) -> None:
        requested = self.gate.without_priors()
        if not requested:
            return
        node_id = await self._cluster.coordinator(GROUP, self._group_id)
        if not await self.is_known_to(node_id):
            self._pass(requested)
            return
        found = await self._priors_at(node_id, requested)
        for tp in sorted(requested - found.keys()):
            # That broker may be cut off and have old metadata: ask the leaders.
            found |= await self._priors_at_leader(tp)
        if requested - found.keys():
            self._cluster.want_refresh()
        self._pass(tp for tp, priors in found.items() if not priors)
        grown = [tp for tp, priors in found.items() if priors]
        begun = await self._begun(grown)
        self._pass(begun)
        for tp in grown:
            self.gate.priors_known(tp, found[tp])

    async def _priors_at(
        self, node_id: int, requested: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[PriorEpoch]]:
        """One broker's answer; rows about another topic of the same name do not count."""
        rows = [
            LeaderEpochForPartitionTopic(name=topic, partitions=indexes)
            for topic, indexes in _by_topic(requested)
        ]
        response = await self._cluster.ask(node_id, LeaderEpochForPartitionRequest(topics=rows))
        assert isinstance(response, LeaderEpochForPartitionResponse)
        found: dict[TopicPartition, list[PriorEpoch]] = {}
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if row.error_code == ErrorCode.NONE and self._is_meant(tp, row.partition_epoch):
                    found[tp] = [
                        PriorEpoch(
                            TopicPartition(topic.name, prior.partition_index), prior.leader_epoch
                        )
                        for prior in row.prior_leader_epochs
                    ]
        return found

    async def _priors_at_leader(self, tp: TopicPartition) -> dict[TopicPartition, list[PriorEpoch]]:
        """The same for one partition, from its leader; empty if it has no answer."""
        try:
            leader = self._cluster.view.leader(tp)
            return await self._priors_at(leader, [tp]) if await self.is_known_to(leader) else {}
        except KafkaError as error:
            _log.debug("prior partitions of %s are not known: %s", tp, error)
            return {}

    def _is_meant(self, tp: TopicPartition, partition_epoch: int) -> bool:
        """Whether an answer is about the partition in the metadata (KIP-232)."""
        mine = self._cluster.view.partition_epoch(tp)
        return -1 in (partition_epoch, mine) or partition_epoch == mine

    async def _begun(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """The partitions that the group has read from: the committed offset is above the log start
        offset.
        """
        committed = await self._committed(partitions) if partitions else {}
        places = {
            tp: row.offset
            for tp, row in committed.items()
            if row is not None and self._is_meant(tp, partition_epoch_of(row))
        }
        starts = await self._log_starts([tp for tp, offset in places.items() if offset > 0])
        missing = {tp for tp, offset in places.items() if offset > 0} - starts.keys()
        if missing:
            raise KafkaError(f"no leader reported the log start offset of {sorted(missing)}")
        return [tp for tp, offset in places.items() if offset > starts.get(tp, offset)]

    def _pass(self, partitions: Iterable[TopicPartition]) -> None:
        """Whether nothing has to be waited for."""
        for tp in partitions:
            self.gate.drop([tp])
            self._subscription.let_go(tp)

    # Thresholds.

    async def _ask_thresholds(self) -> None:
        wanted = self.gate.without_thresholds()
        epochs = {prior.partition: prior.leader_epoch for prior in wanted}
        # A partition may be prior to several, with a different epoch for each: one epoch per
        # request.
        for tp, end in (await epoch_ends(self._cluster, epochs)).items():
            if isinstance(end, EpochEnd) and end.end_offset >= 0:
                self.gate.threshold_known(PriorEpoch(tp, epochs[tp]), end.end_offset)
            else:
                self._cluster.want_refresh()
        # Records that were deleted from a prior partition can't be read any more.
        self.gate.read_up_to(await self._log_starts(self.gate.needed()))

    async def _log_starts(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, FoundOffset] = {}
        await list_offsets_once(
            self._cluster, dict.fromkeys(partitions, EARLIEST), found, READ_UNCOMMITTED,
            self._cluster.settings["request.timeout.ms"],
        )  # fmt: skip
        return {tp: row.offset for tp, row in found.items()}


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        rows[topic].append(index)
    return rows.items()
