"""Finds the gates of added partitions: the offsets that a group must have read before it gets a
partition that was added to a topic with `kstore.ordered.expansion`. For each prior partition this
is the end offset of its last leader epoch under the old count. Before it gets the remaining
partitions of a contraction, a group must have read the retired ones. The offsets come from the
store and the leaders. state/groups/consumer/ordered_expansion.py has the rules.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from kstore.broker.coordination.contraction_nodes import ContractionNode, read_contraction
from kstore.broker.coordination.partition_nodes import PartitionNode, read_node
from kstore.broker.coordination.store import StoreError
from kstore.broker.runtime.log_dirs.visible_end import visible_end
from kstore.broker.state.metadata.gates import UNKNOWN, TopicGates
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.logs.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.cache import MetadataCache
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers
    from kstore.broker.state.metadata.image import TopicImage

__all__ = ["ExpansionGates"]

RETRY_S = 0.2
"""The pause before a leader that did not answer is asked again."""
RENEW_S = 10.0
"""How long the known offsets of retired partitions are used before leaders are asked again."""
ASK_S = 5.0
DEBUGGING_CONSUMER = -2
"""The replica id of a requester that is not a replica."""
Priors: TypeAlias = dict[int, tuple[tuple[int, int], ...]]
"""For each added partition: (prior partition, its leader epoch)."""
REMAINING = -1
"""An added partition that stands for all remaining partitions of a contraction."""


class ExpansionGates:
    """The gates of all topics with ordered expansion. The image has them."""

    def __init__(
        self,
        node: Node,
        store: Store,
        metadata: MetadataCache,
        table: PartitionTable,
        peers: Lazy[Peers],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """``spawn`` starts background work that ends with the broker."""
        self._node = node
        self._store = store
        self._metadata = metadata
        self._table = table
        self._peers = peers
        self._spawn = spawn
        self._priors: dict[str, Priors] = {}
        self._gates: dict[str, TopicGates] = {}
        self._learned: dict[str, float] = {}
        """When a topic's offsets were last updated, by the loop's clock."""
        self._reading = asyncio.Lock()
        self._asking: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Update the gates in the image to its topics. Offsets that only other brokers know are
        requested in the background; until they are known, the partitions are held back.
        """
        if self._stale():
            async with self._reading:
                try:
                    await self._read()
                except StoreError as problem:  # the next request tries again
                    self._node.report(f"partitions that were added are held back: {problem}")
        if self._asking is not None and not self._asking.done():
            return
        if self._unknown():
            self._asking = self._spawn(self._ask())
        elif due := self._due():
            self._asking = self._spawn(self._renew(due))

    def _stale(self) -> list[TopicImage]:
        """The topics whose gates are missing or outdated."""
        image = self._metadata.image
        found = []
        for name in image.ordered:
            topic, gates = image.topics[name], self._gates.get(name)
            known = gates is not None and gates.is_of(topic.topic_id, topic.retirement)
            if gates is None or not known or gates.partitions != len(topic.partitions):
                found.append(topic)
        return found

    async def _read(self) -> None:
        """Read the nodes of unknown gates. For partitions that this broker leads, the offsets are
        found at once.
        """
        stale = self._stale()
        read: dict[str, tuple[ContractionNode | None, list[PartitionNode | None]]]
        read = await self._node.run_blocking(
            lambda: {
                topic.name: (
                    read_contraction(self._store, topic.name),
                    [
                        read_node(self._store, topic.name, index)
                        for index in range(len(topic.partitions))
                    ],
                )
                for topic in stale
            }
        )
        for topic in stale:
            contraction, nodes = read[topic.name]
            priors = {
                index: node.prior_leader_epochs
                for index, node in enumerate(nodes)
                if node is not None and node.prior_leader_epochs
            }
            retirement = topic.retirement
            if retirement is not None:
                if not _is_read(contraction, topic):
                    continue  # it has changed: the image will have it
                # Partitions that retire have no priors: the controller ensures that.
                priors = {i: row for i, row in priors.items() if i < retirement.first}
                priors[REMAINING] = contraction.retired if contraction is not None else ()
            ends = {
                prior: UNKNOWN if index == REMAINING else self._own_end(topic.name, *prior)
                for index, row in priors.items()
                for prior in row
            }
            self._priors[topic.name] = priors
            self._gates[topic.name] = TopicGates(
                topic.topic_id,
                len(topic.partitions),
                {
                    index: tuple((prior[0], ends[prior]) for prior in row)
                    for index, row in priors.items()
                },
                retirement,
            )
        ordered = self._metadata.image.ordered
        self._gates = {name: gates for name, gates in self._gates.items() if name in ordered}
        self._publish()

    def _publish(self) -> None:
        shown = {
            name: gates._replace(
                thresholds={i: row for i, row in gates.thresholds.items() if i != REMAINING},
                retired=gates.thresholds.get(REMAINING, ()),
            )
            for name, gates in self._gates.items()
        }
        self._metadata.publish(self._metadata.image.with_gates(shown))

    def _own_end(self, topic: str, index: int, epoch: int) -> int:
        """The end offset of a leader epoch, if this broker leads in a later one. Accepted records
        that wait for a slow disk belong to the epoch, so its end is unknown until they are written.
        """
        partition = self._table.partition(topic.encode(), index)
        if partition is None or not partition.online or partition.leader_epoch <= epoch:
            return UNKNOWN
        if partition.appends_queued:
            return UNKNOWN
        end: int = partition.end_offset_for_epoch(epoch)[1]
        return end

    def _unknown(self) -> dict[str, set[tuple[int, int]]]:
        """The prior partitions whose end offset is unknown, by topic."""
        found: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for name, gates in self._gates.items():
            if name not in self._metadata.image.ordered:
                continue  # deleted in the meantime
            for index, row in gates.thresholds.items():
                for place, (_, end) in enumerate(row):
                    if end == UNKNOWN:
                        found[name].add(self._priors[name][index][place])
        return found

    async def _ask(self) -> None:
        """Ask the leaders until all end offsets are known."""
        while unknown := self._unknown():
            for name, priors in unknown.items():
                retired = set(self._priors[name].get(REMAINING, ()))
                self._learn(name, await self._ends(name, priors - retired))
                self._learn(name, await self._ends(name, priors & retired, visible_only=True))
            if self._unknown():
                await asyncio.sleep(RETRY_S)

    async def _ends(
        self, name: str, priors: Collection[tuple[int, int]], *, visible_only: bool = False
    ) -> dict[tuple[int, int], int]:
        """The end offsets that can be found now. The others are UNKNOWN or missing."""
        ends = {prior: self._own_end(name, *prior) for prior in priors}
        left = [prior for prior, end in ends.items() if end == UNKNOWN]
        if visible_only:
            for (index, epoch), end in list(ends.items()):
                partition = self._table.partition(name.encode(), index)
                if end != UNKNOWN and partition is not None:
                    found = await visible_end(self._node, partition, end)
                    ends[index, epoch] = UNKNOWN if found is None else found
        return ends | await self._ask_leaders(name, left, visible_only=visible_only)

    async def _ask_leaders(
        self, name: str, priors: Collection[tuple[int, int]], *, visible_only: bool
    ) -> dict[tuple[int, int], int]:
        by_leader: dict[int, dict[int, int]] = defaultdict(dict)
        known: dict[int, int] = {}
        for index, epoch in priors:
            image = self._metadata.image.partition(name, index)
            # A leader epoch has ended only if a later one has begun.
            if image is not None and image.leader_epoch > epoch:
                known[index] = image.leader_epoch
                if image.leader not in (-1, self._node.node_id):
                    by_leader[image.leader][index] = epoch
        found: dict[tuple[int, int], int] = {}
        for leader, epochs in by_leader.items():
            requested = [
                OffsetForLeaderPartition(
                    partition=i,
                    leader_epoch=e,
                    current_leader_epoch=known[i],
                    visible_only=visible_only,
                )
                for i, e in epochs.items()
            ]
            request = OffsetForLeaderEpochRequest(
                replica_id=DEBUGGING_CONSUMER,
                topics=[OffsetForLeaderTopic(topic=name, partitions=requested)],
            )
            try:
                answer = await self._peers().ask(leader, request, ASK_S)
            except KafkaError:
                continue  # the leader is asked again soon
            for row in answer.topics[0].partitions:
                if row.error_code == ErrorCode.NONE:
                    found[row.partition, epochs[row.partition]] = row.end_offset
        return found

    def _due(self) -> list[str]:
        """Contractions whose retired partitions were not checked for a long time. Retention may
        have deleted their records.
        """
        before = asyncio.get_running_loop().time() - RENEW_S
        return [
            name
            for name in self._gates
            if REMAINING in self._priors.get(name, {}) and self._learned.get(name, before) <= before
        ]

    async def _renew(self, names: list[str]) -> None:
        for name in names:
            retired = self._priors.get(name, {}).get(REMAINING, ())
            ends = await self._ends(name, retired, visible_only=True)
            self._learn(name, {prior: end for prior, end in ends.items() if end != UNKNOWN})

    def _learn(self, name: str, ends: dict[tuple[int, int], int]) -> None:
        gates, priors = self._gates.get(name), self._priors.get(name)
        if gates is None or priors is None:
            return
        self._learned[name] = asyncio.get_running_loop().time()
        thresholds = {
            index: tuple(
                (prior, ends.get(priors[index][place], end))
                for place, (prior, end) in enumerate(row)
            )
            for index, row in gates.thresholds.items()
        }
        self._gates[name] = gates._replace(thresholds=thresholds)
        self._publish()


def _is_read(contraction: ContractionNode | None, topic: TopicImage) -> bool:
    """Whether the store and the image agree about a contraction."""
    retirement = topic.retirement
    return (
        contraction is not None
        and retirement is not None
        and contraction.topic_id == topic.topic_id
        and contraction.first == retirement.first
        and dict(contraction.prior_leader_epochs)[retirement.first] == retirement.epoch
    )
